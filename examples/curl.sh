#!/usr/bin/env bash
# curl: a file, samples for a player, words with their times. Run by `make clients`.
set -euo pipefail
address=${COSYSERVE_URL:-http://127.0.0.1:8080}

curl --fail --silent --show-error "$address/v1/audio/speech" \
    --json '{"input": "It works.", "voice": "nova"}' --output it-works.mp3

# Played while it is made: put `aplay -f S16_LE -r 24000` in place of `cat`.
curl --fail --silent --show-error --no-buffer "$address/v1/audio/speech" \
    --json '{"input": "It is heard while it is made.", "voice": "nova", "response_format": "pcm"}' | cat >played.pcm

# Server-sent events: audio, and each word with its times.
curl --fail --silent --show-error --no-buffer "$address/v1/audio/speech" \
    --json '{"input": "One word after another.", "stream_format": "sse", "word_times": true}' | grep words
