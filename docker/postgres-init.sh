#!/bin/sh
# The image of PostgreSQL runs this once, on an empty volume: two users, each with databases of its own.
set -eu
psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\set runs_password `cat "$RUNS_DB_PASSWORD_FILE"`
\set mlflow_password `cat "$MLFLOW_DB_PASSWORD_FILE"`
CREATE ROLE tracker LOGIN PASSWORD :'runs_password';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE DATABASE runs OWNER tracker;
CREATE DATABASE mlflow OWNER mlflow;
CREATE DATABASE mlflow_auth OWNER mlflow;
REVOKE CONNECT ON DATABASE runs, mlflow, mlflow_auth FROM PUBLIC;
SQL
