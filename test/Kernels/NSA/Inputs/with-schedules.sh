#!/bin/sh
# Prints a module of what is in $1, in which kernels of the selected branch have
# the schedule #nsa.schedule<$2>.
list="[#nsa.schedule<$2>]"
sed -n '/^[!#].* = /p' "$1"
echo "module attributes {nsa.schedules = {selected_forward = $list,"
echo "    selected_query_grad = $list, selected_key_value_grad = $list}} {"
sed '/^[!#].* = /d' "$1"
echo "}"
