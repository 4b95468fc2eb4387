"""What every evaluation harness needs: its child process, requests to it, reading of results."""
