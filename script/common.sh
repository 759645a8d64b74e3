# What the scripts beside this file share; sourced, not run.
set -euo pipefail

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${WEFT_CACHE:-$tree/.cache}
self=script/$(basename "$0")

say() { printf '%s: %s\n' "$self" "$*" >&2; }
fail() { say "$@"; exit 1; }

# The comment that opens a script is its help; its first line is the usage.
help() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$tree/$self"; }
usage_error() {
  say "$1"
  printf 'usage: %s\n' "$(help | head -1)" >&2
  exit 2
}

# The folder a preset of CMakePresets.json builds into. Those of the outside folders and of the benchmarks lie beside build/: the
# compiler's cache finds what a plain build compiled only if relative paths are the same.
build_folder() {
  case $1 in
    release) echo "$tree/build" ;;
    *-outside | bench) echo "$tree/build-$1" ;;
    *) echo "$tree/build/$1" ;;
  esac
}
