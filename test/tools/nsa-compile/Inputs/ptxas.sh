#!/bin/sh
# Stands in for ptxas: an empty result, and for every kernel the log of one that
# spills $SPILLS bytes (only $SPILLING, if that names one) and, with $SERIALISED,
# a code such as C7510, of one whose wgmma are serialized. With
# $LIMITED only kernels spill that may not have all registers, with $THREADS only
# kernels of more threads. With two blocks of a multiprocessor at once threads have as
# many registers as they may. Calls are added to the file $CALLS, with the limits of
# registers.
[ "$1" = --version ] && exec echo "stand-in, release 2 $SPILLS $SPILLING $SERIALISED $LIMITED $THREADS"
while [ $# -gt 1 ]; do
  [ "$1" = -o ] && echo cubin > "$2"
  shift
done
if [ -n "$CALLS" ]; then
  echo "call" >> "$CALLS"
  sed -n 's/^\.maxnreg /limit /p' "$1" | sort -u >> "$CALLS"
fi
awk '/\.entry / { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); limit = "none"; used = 40 }
     /^\.maxnreg/ { limit = $2 }
     /^\.reqntid/ { threads = $2 + 0 }
     /^\.minnctapersm 2/ { used = 65536 / 2 / threads }
     /^{/ && name != "" { print name, limit, threads, used; name = "" }' "$1" |
while read -r name limit threads used; do
  spills=${SPILLS:-0}
  [ -z "$THREADS" ] || [ "$threads" -gt "$THREADS" ] || spills=0
  if [ -n "$LIMITED" ]; then
    case $limit in 255 | none) spills=0 ;; esac
  fi
  [ -z "$SPILLING" ] || [ "$SPILLING" = "$name" ] || spills=0
  echo "ptxas info    : Compiling entry function '$name' for 'sm_90a'"
  echo "ptxas info    : Function properties for $name"
  echo "    8 bytes stack frame, $spills bytes spill stores, 0 bytes spill loads"
  echo "ptxas info    : Used $used registers, used 1 barriers"
  if [ -n "$SERIALISED" ]; then
    echo "ptxas info    : ($SERIALISED) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in function '$name'"
  fi
done
