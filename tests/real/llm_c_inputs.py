"""Usage: llm_c_inputs.py FOLDER: what karpathy/llm.c's train_gpt2 reads, in the places where it looks for it: a GPT of
two layers with random weights, and text that is made of few words, so that a loss falls within some steps."""

import array
import pathlib
import random
import struct
import sys

MOST_POSITIONS, VOCABULARY, PADDED, LAYERS, HEADS, CHANNELS = 64, 60, 64, 2, 2, 32
END_OF_TEXT = VOCABULARY - 1


def header(*numbers):
    return struct.pack("<256i", *numbers, *[0] * (256 - len(numbers)))


def model(draw):
    c = CHANNELS
    ones, zeros = lambda count: [1.0] * count, lambda count: [0.0] * count
    noise = lambda count: [draw.gauss(0, 0.02) for _ in range(count)]
    weights = noise(PADDED * c) + noise(MOST_POSITIONS * c)  # of tokens, of positions
    weights += ones(LAYERS * c) + zeros(LAYERS * c)  # first normalisation
    weights += noise(LAYERS * 3 * c * c) + zeros(LAYERS * 3 * c)  # queries, keys, values
    weights += noise(LAYERS * c * c) + zeros(LAYERS * c)  # attention's way out
    weights += ones(LAYERS * c) + zeros(LAYERS * c)  # second normalisation
    weights += noise(LAYERS * 4 * c * c) + zeros(LAYERS * 4 * c)  # wide layer
    weights += noise(LAYERS * c * 4 * c) + zeros(LAYERS * c)  # and back
    weights += ones(c) + zeros(c)  # last normalisation
    sizes = header(20240326, 3, MOST_POSITIONS, VOCABULARY, LAYERS, HEADS, c, PADDED)
    return sizes + array.array("f", weights).tobytes()


def text(draw, words, count):
    tokens = array.array("H")
    while len(tokens) < count:
        tokens.extend(draw.choice(words))
    return header(20240520, 1, count) + tokens[:count].tobytes()


def main():
    draw = random.Random(14)
    folder = pathlib.Path(sys.argv[1])
    texts = folder / "dev/data/tinyshakespeare"
    texts.mkdir(parents=True, exist_ok=True)
    words = [[draw.randrange(END_OF_TEXT) for _ in range(draw.randint(2, 6))] for _ in range(40)]
    (folder / "gpt2_124M.bin").write_bytes(model(draw))
    (texts / "tiny_shakespeare_train.bin").write_bytes(text(draw, words, 40000))
    (texts / "tiny_shakespeare_val.bin").write_bytes(text(draw, words, 8000))
    letters = b"".join(bytes([1, ord("A") + token]) for token in range(VOCABULARY))
    (folder / "gpt2_tokenizer.bin").write_bytes(
        header(20240328, 2, VOCABULARY, END_OF_TEXT) + letters
    )


main()
