"""Do the programs that people have read what nightshift writes?

    python tests/ref/clients.py [./nightshift]      (needs: openai, datasets, pillow)

Runs jobs over the demo model, good and bad ones, and reads the output with the OpenAI package's types (strict), the
`metadata` export with Hugging Face ImageFolder, `csv` with Python's reader, `sharegpt` with the JSON loader of datasets, the
queue with Python's own SQLite. Prints what was read; any refusal is an exception.
"""
import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from datasets import load_dataset
from openai.types.chat import ChatCompletion
from openai.types.shared import ErrorObject

NIGHTSHIFT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "./nightshift")
MODEL = os.path.abspath("examples/demo-model")
PICTURES = ["circles.png", "belgium.png", "yes.png", "left.png"]


def run(*args, ok=(0,)):
    done = subprocess.run([NIGHTSHIFT, *args], capture_output=True, text=True)
    if done.returncode not in ok:
        raise SystemExit(f"{args}: exit {done.returncode}\n{done.stderr}")


def write_jobs(folder):
    jobs = [{"id": f"pic {p}", "image": p, "prompt": "Caption this image.", "max_tokens": 60} for p in PICTURES]
    jobs += [
        {"custom_id": "openai", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": "demo-model", "messages": [{"role": "user", "content": "What is 2 + 3?"}],
                  "max_completion_tokens": 20, "metadata": {"a": "b"}}},
        {"custom_id": "thinks", "params": {"messages": [{"role": "user", "content": "Sort 3 1 2."}], "max_tokens": 40,
                                           "reasoning_effort": "low"}},
        {"id": "short", "prompt": "Spell the word \"cat\",\nline by line.", "max_tokens": 2},
        {"id": "json", "prompt": "What is 4 * 2?", "max_tokens": 30, "response_format": {"type": "json_object"}},
        {"id": "tools", "prompt": "x", "tools": [{}]},
        {"id": "gone", "image": "none.png", "prompt": "x"},
        {"id": "short", "prompt": "again"},
    ]
    path = os.path.join(folder, "jobs.jsonl")
    with open(path, "w") as f:
        for j in jobs:
            f.write(json.dumps(j) + "\n")
        f.write("no JSON\n")
    return path, len(jobs) + 1


def read_openai(path):
    """Each line: id, custom_id, response, error as the Batch API documents them."""
    good = bad = 0
    for line in open(path, encoding="utf-8"):
        x = json.loads(line)
        assert set(x) == {"id", "custom_id", "response", "error"}, x
        assert isinstance(x["id"], str) and isinstance(x["response"]["request_id"], str)
        assert x["custom_id"] is None or isinstance(x["custom_id"], str)
        status, body = x["response"]["status_code"], x["response"]["body"]
        if x["error"] is None:
            assert status == 200
            c = ChatCompletion.model_validate(body, strict=True)
            assert c.choices[0].message.content is not None and c.usage.total_tokens > 0
            assert c.usage.total_tokens == c.usage.prompt_tokens + c.usage.completion_tokens
            good += 1
        else:
            assert status >= 400
            ErrorObject.model_validate(body["error"], strict=True)
            assert isinstance(x["error"]["code"], str) and isinstance(x["error"]["message"], str)
            bad += 1
    return good, bad


def documented_queries():
    """The indented lines of jobs/README.md."""
    return "".join(line[4:] for line in open("jobs/README.md") if line.startswith("    "))


def main():
    folder = tempfile.mkdtemp()
    try:
        for p in PICTURES:
            shutil.copy(os.path.join("examples/images", p), folder)
        jobs, n = write_jobs(folder)
        out = lambda name: os.path.join(folder, name)
        run("run", jobs, "-m", MODEL, "-o", out("out.jsonl"), "--errors-file", out("errors.jsonl"), "-q", ok=(1,))
        db = out("out.jsonl.db")

        good, bad = read_openai(out("out.jsonl"))
        assert good + bad == n, (good, bad, n)
        assert read_openai(out("errors.jsonl")) == (0, bad)
        print(f"openai: {good} ChatCompletion, {bad} ErrorObject")

        for form in ("metadata", "csv", "sharegpt"):
            run("export", "--db", db, "--format", form, "-o", out("metadata.jsonl" if form == "metadata" else form))
        pictures = load_dataset("imagefolder", data_dir=folder, cache_dir=out("cache"), split="train")
        assert len(pictures) == len(PICTURES), pictures
        assert all(isinstance(x["text"], str) and x["text"] and x["image"].size[0] > 0 for x in pictures)
        print(f"datasets ImageFolder: {len(pictures)} pictures with text, columns {pictures.column_names}")

        rows = list(csv.DictReader(open(out("csv"), newline="", encoding="utf-8"), strict=True))
        assert len(rows) == n and sum(r["state"] == "done" for r in rows) == good
        assert all(None not in r and None not in r.values() for r in rows)
        print(f"csv: {len(rows)} rows, columns {list(rows[0])}")

        turns = load_dataset("json", data_files=out("sharegpt"), cache_dir=out("cache"), split="train")
        assert len(turns) == good and all(t["conversations"][-1]["from"] == "gpt" for t in turns)
        print(f"datasets json: {len(turns)} conversations")

        q = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
        assert q.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        queries = [s.strip() for s in documented_queries().split(";") if s.strip()]
        print(f"sqlite {sqlite3.sqlite_version}:", [len(q.execute(s).fetchall()) for s in queries], "rows")
        if shutil.which("sqlite3"):
            text = subprocess.run(["sqlite3", "-bail", db], input=documented_queries(), capture_output=True, text=True)
            assert text.returncode == 0 and not text.stderr, text.stderr
            print("sqlite3 shell:", len(text.stdout.splitlines()), "lines")
    finally:
        shutil.rmtree(folder)


main()
