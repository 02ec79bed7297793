#!/bin/sh
# Slurm's Prolog= on every node: leaves the job's identity where the node agent looks. No user, no
# other program, and never a reason for Slurm to drain the node: it always ends with 0.
#
#   Prolog=/etc/nodewarden/prolog.sh
#   Epilog=/etc/nodewarden/epilog.sh
#
# A site with a prolog of its own calls this one from it, or lists both (Prolog= may be a pattern).
# NODEWARDEN_JOBS_DIR, default /run/nodewarden/jobs, is `collect.jobs_dir` of the agent.

umask 022
directory=${NODEWARDEN_JOBS_DIR:-/run/nodewarden/jobs}
id=${SLURM_JOB_ID:-}

plain() { # $1 holds nothing but what ids and host lists are made of
	case $1 in
	'' | *[!A-Za-z0-9_.,:@+[\]-]*) return 1 ;;
	esac
}

plain "$id" || exit 0
job=$id # of a task of an array Slurm tells a node only this; the agent finds its name
if plain "${SLURM_ARRAY_JOB_ID:-}" && plain "${SLURM_ARRAY_TASK_ID:-}"; then
	job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} # as squeue names it
fi
nodes=${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}}
plain "$nodes" || nodes=

{
	mkdir -p "$directory" &&
		printf '{"job":"%s","started_at":%s,"nodes":"%s"}\n' \
			"$job" "$(date +%s)" "$nodes" >"$directory/.$id.new" &&
		mv -f "$directory/.$id.new" "$directory/$id"
} 2>/dev/null
exit 0
