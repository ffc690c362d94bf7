# Takes out of a page by mlir-tblgen what says nothing about its operations: marks
# of the site generator Hugo, traits and interfaces that every operation has, and
# enumerations of other dialects that come with an included file.

BEGIN {
  split("AlwaysSpeculatableImplTrait AttrSizedOperandSegments AttrSizedResultSegments " \
        "InferTypeOpAdaptor NSA_KnownAttributes NSA_LimitedSizes ConditionallySpeculatable " \
        "InferTypeOpInterface OpAsmOpInterface", words, " ")
  for (i in words)
    inherited["`" words[i] "`"]
  inherited["`NoMemoryEffect (MemoryEffectOpInterface)`"]
}

function put(line) {
  if (line ~ /^##+ / && last != "")
    print ""
  if (line != "" || last != "")
    print line
  last = line
}

# A line `Traits: a, b` without what is inherited, or nothing.
function own(line,    key, items, count, i, kept) {
  key = line
  sub(/:.*/, "", key)
  sub(/^[A-Za-z]*: /, "", line)
  count = split(line, items, ", ")
  for (i = 1; i <= count; ++i)
    if (!(items[i] in inherited))
      kept = kept (kept == "" ? "" : ", ") items[i]
  return kept == "" ? "" : key ": " kept
}

/^\[TOC\]$/ || /^Effects: `MemoryEffects::Effect\{\}`$/ { next }
/^<tr><td><code>(sym_visibility|arg_attrs|res_attrs)<\/code>/ { next }
/^(Traits|Interfaces): / { put(own($0)); next }
/^## / { isEnums = $0 == "## Enums" }
isEnums && /^### / { isForeign = index(text, $2) == 0 }
isEnums && isForeign { next }
{
  gsub(/ \(it is \{\{\$_self\}\}\)/, "")
  if (!isEnums)
    text = text "\n" $0
  put($0)
}
