"""Exact-match accuracy by task: score.py EXPECTED.jsonl ANSWERS.jsonl [MISSES].

JSON answers are right when they have the same keys and values; all others when the text is the same. MISSES (0): how many
wrong answers of each task to show. A job without an answer is wrong, and said to be missing.
"""

import collections
import json
import sys


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def content(line):
    body = (line.get("response") or {}).get("body") or {}
    return body["choices"][0]["message"]["content"] if body.get("choices") else None


def same(got, want):
    if want.startswith("{"):
        try:
            return json.loads(got) == json.loads(want)
        except ValueError:
            return False
    return got == want


def main():
    show = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    answers = {line["custom_id"]: content(line) for line in lines(sys.argv[2])}
    right, total, missing = collections.Counter(), collections.Counter(), 0
    misses = collections.defaultdict(list)
    for job in lines(sys.argv[1]):
        task, want, got = job["task"], job["answer"], answers.get(job["custom_id"])
        total[task] += 1
        missing += got is None
        if got is not None and same(got, want):
            right[task] += 1
        else:
            misses[task].append(f"    {job['custom_id']}: {got!r} instead of {want!r}")
    shares = {t: right[t] / total[t] for t in total}
    print("task                right   of      %")
    for task, share in shares.items():
        print(f"{task:18s} {right[task]:6d} {total[task]:4d} {100 * share:6.1f}")
        print("".join(line + "\n" for line in misses[task][:show]), end="")
    worst = min(shares, key=shares.get)
    print(f"\n{len(shares)} tasks, {sum(total.values())} jobs, {missing} without an answer: "
          f"{100 * sum(shares.values()) / len(shares):.1f} % on average, {100 * shares[worst]:.1f} % in {worst}")


if __name__ == "__main__":
    main()
