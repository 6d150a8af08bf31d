#!/usr/bin/env bash
# Runs one job on several machines by ssh: one agent on each, the first host is node 0.
#
#   configs/launch/ssh.sh "gpu1 gpu2" trainer run job.yaml [FLAGS...]
#   configs/launch/ssh.sh "gpu1 gpu2" trainer launch --nproc-per-node 8 -- python train.py
#
# Each host needs ssh without a password and, at the same path as here, the job's files. Ctrl-C stops all as it stops
# one agent; so does the end of this script, however it ends. The exit code is that of the agent that failed first.
#
# MASTER_ADDR: node 0's address for the others, when it is not the name that ssh uses. MASTER_PORT: default 29500.
# SSH: default "ssh -o BatchMode=yes".
set -u

if [ $# -lt 2 ]; then
  sed -n '2,/^set/ { s/^# \{0,1\}//; /^set/d; p }' "$0" >&2
  exit 2
fi
read -ra hosts <<<"$1"
shift
read -ra ssh <<<"${SSH:-ssh -o BatchMode=yes}"

# For a remote shell of any kind.
quoted() {
  local word
  for word; do printf " '%s'" "${word//\'/\'\\\'\'}"; done
}

# A remote host: the agent runs until it ends, or until standard input ends, which is when this script lets go.
# shellcheck disable=SC2016
remote='cd "$1" || exit; shift; exec 3<&0
"$@" </dev/null & agent=$!
{ cat; kill -TERM $agent; } <&3 >/dev/null 2>&1 & watch=$!
exec 3<&-
wait $agent; code=$?; kill $watch 2>/dev/null; exit $code'

# All hosts' standard input is one pipe, which this script alone holds open and nobody writes to.
pipes=$(mktemp -d)
mkfifo "$pipes/hold"
exec {hold}<>"$pipes/hold"
exec {input}<"$pipes/hold"
rm -r "$pipes"
agents=()
for rank in "${!hosts[@]}"; do
  node=("PET_NNODES=${#hosts[@]}" "PET_NODE_RANK=$rank"
    "PET_MASTER_ADDR=${MASTER_ADDR:-${hosts[0]#*@}}" "PET_MASTER_PORT=${MASTER_PORT:-29500}")
  "${ssh[@]}" "${hosts[rank]}" "exec sh -c$(quoted "$remote" sh "$PWD" env "${node[@]}" "$@")" \
    <&"$input" {input}<&- {hold}>&- &
  agents+=($!)
done

signals=0
stop() {
  signals=$((signals + 1))
  if [ $signals = 1 ]; then exec {hold}>&-; else kill "${agents[@]}" 2>/dev/null; fi
}
trap stop INT TERM HUP

result=0 left=${#agents[@]}
while [ "$left" -gt 0 ]; do
  before=$signals
  wait -n
  code=$?
  [ $signals = "$before" ] || continue # a signal, not the end of an agent
  left=$((left - 1))
  if [ $code != 0 ] && [ $result = 0 ]; then
    result=$code
    [ $signals != 0 ] || stop
  fi
done
exit $result
