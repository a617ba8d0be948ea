#!/bin/sh
# Pictures from the command line: a short night of good and hostile ones, extreme shapes, orientation, damage that is let pass,
# limits, pictures that change between add and work. FULL=1 takes 10000 pictures for the night.
. tests/lib/cli.sh
NIGHTSHIFT=$nightshift
BUILD=${BUILD:-build/release}
export BUILD NIGHTSHIFT

run() {
    "$nightshift" run -m "$model" --prompt "Caption this image." --max-tokens 2 "$@"
}

set -- 200 10
[ -n "$FULL" ] && set -- 10000 100
expect "a night with hostile pictures" 0 "as expected" sh tests/bench/pictures.sh "$@"

# The pictures of the golden table that are wanted here, as files.
mkdir "$tmp/pics"
"$BUILD/tests/cli/golden_picture" "$tmp/pics" one_pixel.png tall.png wide.png exif_6.jpg exif_6.png exif_6.webp bomb_30000.png \
    cut_half.jpg cut_stream.png cut_half.gif cut_half.bmp cut_inside.webp ratio_10001.png frames_claimed.png frames_10001.gif \
    frames_10001.webp scans_1135.jpg photo.nef || exit 1

# line FILE TEXT WHAT: the answer to a picture has the text.
line() {
    if grep -F "/$1\"" "$tmp/lines" | grep -qF "$2"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $3: $1 is without $2"
        grep -F "$1" "$tmp/lines"
    fi
}

expect "all kinds as they are" 1 "6 done, 12 failed" run "$tmp"/pics/* -o "$tmp/lines"
line one_pixel.png '"width":1,"height":1,' "one pixel works"
line tall.png '"width":1,"height":4000,' "a tall line works"
line wide.png '"width":4000,"height":1,' "a wide line works"
for kind in jpg png webp; do line exif_6.$kind '"width":29,"height":37,' "orientation of $kind is applied"; done
for file in cut_half.jpg cut_stream.png cut_half.gif cut_half.bmp cut_inside.webp; do
    line $file image_truncated "a cut file is no picture"
done
line bomb_30000.png "30000 x 30000 is 900000000 pixels" "a header that lies is refused"
line ratio_10001.png "1 x 10001: one side is more than 10000 times the other" "a line too thin is refused"
line frames_claimed.png "4294967295 frames, the limit is 10000" "a header that lies of frames is refused"
for kind in gif webp; do line frames_10001.$kind "10001 frames, the limit is 10000" "too many frames are refused"; done
line scans_1135.jpg "image_too_large\",\"message\":\"jpeg: more than 100 scans" "a small file that takes long is refused"
line photo.nef "the format is camera raw (NEF)" "an unknown format is named"

expect "otherwise if so wanted" 1 "9 done, 9 failed" run "$tmp"/pics/* -o "$tmp/lines" --fresh --no-exif --lenient-images \
    --max-pixels 3999 --prompt "Describe this image."
for kind in jpg png webp; do line exif_6.$kind '"width":37,"height":29,' "orientation of $kind is not applied"; done
for file in cut_half.jpg cut_stream.png cut_half.gif cut_half.bmp cut_inside.webp; do
    line $file "damaged: " "what is left of a cut file is shown, and it says so"
done
line tall.png "1 x 4000 is 4000 pixels, the limit is 3999" "larger pictures are refused"
expect "as are larger files" 1 "image_too_large 1" run "$tmp/pics/exif_6.jpg" -o "$tmp/bytes.out" --max-image-bytes 100

# A photo of 12 megapixels. The peak of all processes together, shared pages once, stays below --ram.
tree_kb() {
    for p in $1 $(pgrep -P "$1") $(pgrep -P "$(pgrep -P "$1" | head -n 1)" 2>/dev/null); do
        awk '$1 == "Pss:" { print $2 }' "/proc/$p/smaps_rollup" 2>/dev/null
    done | awk '{ n += $1 } END { print n + 0 }'
}
photo() {
    "$nightshift" run -m "$model" --prompt "Caption this image." --max-tokens 2 "$tmp/photo.jpg" -o "$tmp/photo.out" --fresh \
        --ram "$1M" >"$tmp/out" 2>&1 </dev/null &
    pid=$! peak=0
    while kill -0 $pid 2>/dev/null; do
        now=$(tree_kb $pid)
        [ "$now" -gt "$peak" ] && peak=$now
    done
    wait $pid
    ended=$?
    case $BUILD in
    *asan | *tsan) ;; # a sanitizer's memory is its own
    *) expect "all processes keep to --ram $1M" 0 "" test "$peak" -gt 0 -a "$peak" -le $(($1 * 1024)) ;;
    esac
}
"$BUILD/tests/cli/make_pictures" "$tmp" photo
photo 110
expect "a photo without room fails alone" 0 "^1$" echo $ended
expect "and it says what has room" 0 "image_too_large.*--ram [0-9]*M has room" cat "$tmp/photo.out"
photo "$(sed -n 's/.*--ram \([0-9]*\)M has room.*/\1/p' "$tmp/photo.out")"
expect "which it has" 0 '"status_code":200' cat "$tmp/photo.out"

# Imported, then changed as told; what work says with each way of looking.
changed() {
    name=$1 how=$2 code=$3 text=$4
    shift 4
    rm -f "$tmp/q.db"
    cp examples/images/circles.png "$tmp/v.png"
    touch -d 2020-01-01 "$tmp/v.png"
    "$nightshift" add "$tmp/v.png" --prompt "Caption this image." --max-tokens 2 --db "$tmp/q.db" 2>"$tmp/err"
    "$@"
    expect "$name, $how" "$code" "$text" "$nightshift" work -m "$model" --db "$tmp/q.db" --verify-images "$how"
}
# One byte of a text chunk or of the pixels differs: the same size.
other() { printf 'X' | dd of="$tmp/v.png" bs=1 seek="$(($(wc -c <"$tmp/v.png") - 20))" conv=notrunc 2>"$tmp/err"; }
other_in_secret() { other && touch -d 2020-01-01 "$tmp/v.png"; }
changed "as it was" stat 0 "1 done" true
changed "touched" content 0 "1 done" touch "$tmp/v.png"
changed "touched" stat 1 "image_changed 1" touch "$tmp/v.png"
changed "rewritten" stat 1 "image_changed 1" other
changed "rewritten at the same size and time" content 1 "image_changed 1" other_in_secret
changed "rewritten at the same size and time" stat 1 "image_unreadable 1" other_in_secret
changed "gone" stat 1 "image_missing 1" rm "$tmp/v.png"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
