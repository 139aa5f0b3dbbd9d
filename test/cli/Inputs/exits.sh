#!/bin/sh
# exits.sh STATUS COMMAND...      passes where the command exits with just this status
expected=$1
shift
"$@"
status=$?
test $status = "$expected" && exit 0
echo "exit status $status instead of $expected: $*" >&2
exit 1
