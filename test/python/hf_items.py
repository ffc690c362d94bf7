"""Items of multiple choice for lm-eval's harness and nsa-eval, and whether both score them alike.

    hf_items.py FOLDER            writes text/, items.jsonl and the harness's task
    hf_items.py FOLDER compare    compares results/ of the harness with own.json of nsa-eval
"""

import json
import pathlib
import random
import sys

TASK = """task: local_items
dataset_path: json
dataset_kwargs: {{data_files: {{test: {items}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - {{metric: acc}}
  - {{metric: acc_norm}}
"""

SUBJECTS, VERBS = ("the cat", "a dog", "the old man", "my friend"), ("sees", "hears", "finds")
OBJECTS = ("the sea", "a house", "nobody")


def write(folder):
    draw = random.Random(5)
    (folder / "text").mkdir()
    for number in range(40):
        sentences = [f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}." for _ in range(30)]
        (folder / "text" / f"{number}.txt").write_text(" ".join(sentences))
    items = []
    for _ in range(60):
        choices = [f"{draw.choice(VERBS)} {draw.choice(OBJECTS)}.", f"{draw.choice(OBJECTS)} {draw.choice(VERBS)}.",
                   "".join(draw.sample("abcdefgh", 5))]
        draw.shuffle(choices)
        items.append({"context": f"{draw.choice(SUBJECTS)}", "choices": choices, "answer": draw.randrange(3)})
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (folder / "local_items.yaml").write_text(TASK.format(items=folder / "items.jsonl"))


def compare(folder):
    [path] = folder.glob("results/**/results_*.json")
    theirs = json.loads(path.read_text())["results"]["local_items"]
    [own] = json.loads((folder / "own.json").read_text())["choices"]
    for name, key in (("acc,none", "accuracy"), ("acc_norm,none", "accuracy_per_character")):
        print(f"{key}: {own[key]:.4f}, lm-eval says {theirs[name]:.4f}")
        if abs(own[key] - theirs[name]) > 1e-9:
            sys.exit(f"error: {name} is {theirs[name]}, nsa-eval says {own[key]}")


if __name__ == "__main__":
    (compare if len(sys.argv) > 2 else write)(pathlib.Path(sys.argv[1]))
