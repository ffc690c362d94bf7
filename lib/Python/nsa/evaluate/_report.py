"""Results as tables."""


def _table(heads, rows):
    cells = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]


def _range(row):
    return f"{row['from']}" if row["from"] == row["to"] else f"{row['from']}-{row['to']}"


def _loss(result):
    unit = "" if result["bits_per_byte"] is None else f" | {result['bits_per_byte']:.4f} bits/byte"
    if result["text_after"]:
        unit += f" of text after {result['text_after']}"
    yield (f"loss {result['loss']:.4f} nats/token{unit} | perplexity {result['perplexity']:.3f} | {result['data']}: "
           f"{result['tokens']:,} tokens in {result['windows']:,} windows of {result['seq_len']:,}")
    for title, key in (("position", "by_position"), ("document length", "by_document_length")):
        if result[key]:
            yield from _table([title, "tokens", "loss"],
                              [[_range(row), row["tokens"], f"{row['loss']:.4f}"] for row in result[key]])


def _probe(name, result):
    chance = f" (chance {result['chance']:.3f})" if "chance" in result else ""
    yield (f"{name}: accuracy {result['accuracy']:.3f}{chance} | loss {result['loss']:.4f} | "
           f"{result['answers']:,} answers")
    yield from _table(["distance", "answers", "accuracy", "loss"],
                      [[_range(row), row["answers"], f"{row['accuracy']:.3f}", f"{row['loss']:.4f}"]
                       for row in result["by_distance"]])


def _choices(result):
    yield (f"{result['file']}: accuracy {result['accuracy']:.4f}, per character "
           f"{result['accuracy_per_character']:.4f}, per token {result['accuracy_per_token']:.4f} "
           f"(chance {result['chance']:.4f}) | {result['items']:,} items")
    if result["truncated"]:
        yield f"  {result['truncated']} contexts are longer than the model takes and lost their beginning"


def lines(results):
    """The lines that nsa-eval prints."""
    yield f"{results['checkpoint']} | step {results['step']} | {results['target']} | {results['precision']}"
    for key, result in results.items():
        if key == "loss":
            for part in result:
                yield from _loss(part)
        elif key == "choices":
            for part in result:
                yield from _choices(part)
        elif key == "probes":
            for name, part in result.items():
                yield from _probe(name, part)
