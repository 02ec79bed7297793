#!/bin/sh
# Slurm's Epilog= on every node: the job no longer holds it. See prolog.sh; always ends with 0.

directory=${NODEWARDEN_JOBS_DIR:-/run/nodewarden/jobs}
id=${SLURM_JOB_ID:-}

case $id in
'' | *[!A-Za-z0-9_]*) exit 0 ;;
esac
rm -f "$directory/$id" "$directory/.$id.new" 2>/dev/null
exit 0
