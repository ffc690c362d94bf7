#!/bin/sh
# Stands in for ptxas: an empty result, and for every kernel the log of one that
# spills $SPILLS bytes and, with $SERIALISED, of one whose products wait.
while [ $# -gt 1 ]; do
  [ "$1" = -o ] && echo cubin > "$2"
  shift
done
sed -n 's/^.*\.entry \([A-Za-z0-9_]*\)(.*$/\1/p' "$1" | while read -r name; do
  echo "ptxas info    : Compiling entry function '$name' for 'sm_90a'"
  echo "ptxas info    : Function properties for $name"
  echo "    8 bytes stack frame, ${SPILLS:-0} bytes spill stores, 0 bytes spill loads"
  echo "ptxas info    : Used 40 registers, used 1 barriers"
  if [ -n "$SERIALISED" ]; then
    echo "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in function '$name'"
  fi
done
