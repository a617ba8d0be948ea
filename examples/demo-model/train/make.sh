#!/bin/sh
# Makes the demo model from nothing: make.sh [OPTION...], from the root of the repository; options go to train.py (--help).
# DIR (build/train): folder of the checkpoint, of its log, and of the model in the Hugging Face layout, DIR/model. PYTHON: with
# torch, numpy, Pillow and safetensors. Run it again to go on where it was stopped (Ctrl-C saves first);
# exit 75: there is more to do.
here=$(dirname "$0")
out=${DIR:-build/train}
python=${PYTHON:-python3}
mkdir -p "$out"
fifo=$out/log.fifo
rm -f "$fifo"
mkfifo "$fifo" || exit 1
tee -a "$out/log" <"$fifo" &
"$python" "$here/train.py" --out "$out" "$@" >"$fifo" 2>&1 &
train=$!
trap 'kill -TERM $train 2>/dev/null' TERM INT
wait $train
rc=$?
while kill -0 $train 2>/dev/null; do  # a signal ended the wait, and the training is saving
    wait $train
    rc=$?
done
trap - TERM INT
rm -f "$fifo"
wait
[ $rc -eq 0 ] || [ $rc -eq 75 ] || exit $rc
"$python" "$here/checkpoint.py" "$out/training.pt" "$out/model" || exit 1
exit $rc
