#!/bin/bash
# stop_when.sh CONDITION ACTION STATUS COMMAND...
# Starts the command, does the action once the condition holds ($run is the process), and passes where the command then
# exits with STATUS. Condition and action are words of bash.
condition=$1 action=$2 status=$3
shift 3
"$@" &
run=$!
until eval "$condition"; do
  kill -0 $run || exit 1
  sleep 0.1
done
eval "$action"
wait $run
test $? = "$status"
