"""The data order of lib/data/sampler.h written again, with Python's integers: prints the orders that
tests/unit/data/sampler_test.cpp expects."""

import math

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def order(n, seed, epoch):
    key = mix64((mix64(seed) + epoch) & MASK)
    rows = math.isqrt(n - 1) + 1
    columns = -(-n // rows)
    result = []
    for index in range(n):
        while True:
            row, column = divmod(index, columns)
            for r in range(4):
                row = (row + mix64((key + (2 * r << 56) + column) & MASK)) % rows
                column = (column + mix64((key + ((2 * r + 1) << 56) + row) & MASK)) % columns
            index = row * columns + column
            if index < n:
                break
        result.append(index)
    return result


if __name__ == "__main__":
    for arguments in [(10, 42, 0), (10, 42, 1), (10, 43, 0), (13, 2**63 + 5, 1000000)]:
        print(arguments, order(*arguments))
    print(order(100000, 42, 7)[99990:])
