#!/bin/bash
# Every script is sound bash, prints its help, and answers a wrong argument with its usage line and exit code 2.
cd "$(dirname "${BASH_SOURCE[0]}")/../../script" || exit 1
failed=0
complain() { echo "$1"; failed=1; }

for script in demo gallery test build python bench format lint setup site picture compare-plans mutate; do
  if head -1 "$script" | grep -q bash; then bash -n "$script" || complain "script/$script does not parse"; fi
  "./$script" --help | head -1 | grep -q "^script/$script " || complain "script/$script --help does not open with its usage"
  said=$("./$script" --no-such-option 2>&1 > /dev/null)
  code=$?
  [ $code = 2 ] || complain "script/$script --no-such-option exits with $code, not 2"
  grep -q "^usage: script/$script " <<< "$said" || complain "script/$script --no-such-option prints no usage: $said"
done
exit $failed
