#!/bin/sh
# Writes what docker-compose.yml needs: passwords in docker/secrets/, and .env. Existing files are kept.
#   docker/prepare.sh cpu /data/runs      # the folder that trainers write to; `gpu` for vLLM on a GPU
set -eu
[ $# -eq 2 ] && { [ "$1" = cpu ] || [ "$1" = gpu ]; } || {
    echo "usage: docker/prepare.sh cpu|gpu FOLDER_OF_RUNS" >&2
    exit 2
}
runs="$(cd "$2" && pwd)"
cd "$(dirname "$0")/.."

# Weights are written readable by their owner only, so the containers read them as that user.
uid="${TRACKER_UID:-$(stat -c %u "$runs")}" gid="${TRACKER_GID:-$(stat -c %g "$runs")}"
[ "$uid" -ne 0 ] || [ "${TRACKER_UID:-}" = 0 ] || {
    echo "prepare: $runs belongs to root, so only root can read the checkpoints in it" >&2
    echo "  hint: run trainers as another user who owns the folder (chown -R), or let the containers read" >&2
    echo "        as root without root's capabilities: TRACKER_UID=0 docker/prepare.sh $*" >&2
    exit 2
}

# Compose hands a file over as it is, owner and mode included, to containers with users of their own: the files may be
# read by all, and nobody but their owner gets into the folder.
umask 022
mkdir -p docker/secrets
chmod 700 docker/secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in postgres_password runs_db_password mlflow_db_password mlflow_admin_password mlflow_tracker_password \
    mlflow_session_key s3_secret_key; do
    [ -s "docker/secrets/$name" ] || random > "docker/secrets/$name"
done
[ -s docker/secrets/s3_identities ] || cat > docker/secrets/s3_identities <<JSON
{"identities": [{"name": "mlflow",
  "credentials": [{"accessKey": "mlflow", "secretKey": "$(cat docker/secrets/s3_secret_key)"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON

if [ -e .env ]; then
    echo "prepared: passwords in docker/secrets; existing .env kept"
    exit
fi
cat > .env <<ENV
COMPOSE_PROFILES=$1
RUNS_DIR=$runs
TRACKER_UID=$uid
TRACKER_GID=$gid
ENV
echo "prepared: passwords in docker/secrets, settings in .env"
