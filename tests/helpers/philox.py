"""Counter-based random numbers in plain Python."""


def philox(counter, key):
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011); both as sequences of 32-bit words."""
    c, k = list(counter), list(key)
    for _ in range(10):
        products = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        low, high = [p & 0xFFFFFFFF for p in products], [p >> 32 for p in products]
        c = [high[1] ^ c[1] ^ k[0], low[1], high[0] ^ c[3] ^ k[1], low[0]]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c
