/* (v * gain + offset) / 2^shift rounded to the nearest integer, halves away from zero. */
static inline int64_t pd_affine(int64_t v, int32_t gain, int64_t offset, uint8_t shift)
{
    int64_t t = v * gain + offset;
    uint64_t half = ((uint64_t)1 << shift) >> 1;
    uint64_t size = ((t < 0 ? (uint64_t)0 - (uint64_t)t : (uint64_t)t) + half) >> shift;
    return t < 0 ? -(int64_t)size : (int64_t)size;
}

/* Floor of the square root. */
static inline uint32_t pd_square_root(uint64_t v)
{
    uint64_t root = 0, bit = (uint64_t)1 << 62;
    while (bit > v) {
        bit >>= 2;
    }
    while (bit != 0) {
        if (v >= root + bit) {
            v -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
        bit >>= 2;
    }
    return (uint32_t)root;
}

/* Sum of an output's totals over the samples. */
static inline int64_t pd_sum(const int32_t *totals, uint16_t output)
{
    int64_t sum = 0;
    uint16_t s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        sum += totals[output * PD_N_SAMPLES + s];
    }
    return sum;
}

/* Standard deviation of an output over the samples, with the noise, in units of its totals. */
static inline uint32_t pd_root(const int32_t *totals, uint16_t output)
{
    const uint64_t half = ((uint64_t)1 << PD_DEVIATION_SHIFT) >> 1;
    int64_t sum = pd_sum(totals, output);
    uint64_t squares = pd_noise[output];
    uint16_t s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        int64_t deviation = (int64_t)PD_N_SAMPLES * totals[output * PD_N_SAMPLES + s] - sum;
        uint64_t size = deviation < 0 ? (uint64_t)0 - (uint64_t)deviation : (uint64_t)deviation;
        size = (size + half) >> PD_DEVIATION_SHIFT;
        squares += size * size;
    }
    return pd_square_root(squares);
}

/* Quantile of the samples' totals; p is 65536 times the probability. */
static inline int32_t pd_quantile(const int32_t *totals, uint16_t output, uint32_t p)
{
    int32_t ordered[PD_N_SAMPLES + 1];
    uint32_t h = p * (PD_N_SAMPLES - 1u), i = h >> 16, fraction = h & 0xFFFFu;
    uint64_t gap;
    uint16_t s, at;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        int32_t total = totals[output * PD_N_SAMPLES + s];
        for (at = s; at > 0 && ordered[at - 1] > total; --at) {
            ordered[at] = ordered[at - 1];
        }
        ordered[at] = total;
    }
    ordered[PD_N_SAMPLES] = ordered[PD_N_SAMPLES - 1];
    gap = (uint64_t)((int64_t)ordered[i + 1] - ordered[i]);
    return (int32_t)(ordered[i] + (int64_t)((gap * fraction + 0x8000u) >> 16));
}

/* --------------------------------------------------------------------------------------------- results in fixed point

   Counts, PD_COUNTS_PER_UNIT_k of which make a unit of output k. Proved: whatever the inputs, no result is beyond
   PD_LARGEST_RESULT counts. */

/* A function from the sum of its totals over PD_N_SAMPLES samples, or from PD_N_SAMPLES times its own. */
static inline int32_t pd_value(int64_t sum, uint16_t output)
{
    return (int32_t)pd_affine(sum, PD_READ_32(pd_gain + output), pd_offset[output], PD_READ_8U(pd_shift + output));
}

/* A width in units of the totals. */
static inline int32_t pd_width(uint64_t width, uint16_t output)
{
    return (int32_t)pd_affine((int64_t)width, PD_READ_32(pd_width_gain + output), 0,
                              PD_READ_8U(pd_width_shift + output));
}

static inline int32_t pd_mean(const int32_t *totals, uint16_t output)
{
    return pd_value(pd_sum(totals, output), output);
}

static inline int32_t pd_std(const int32_t *totals, uint16_t output)
{
    return pd_width(pd_root(totals, output), output);
}

/* Half-width of the central Gaussian interval with probability PD_LEVEL. */
static inline int32_t pd_half_width(const int32_t *totals, uint16_t output)
{
    return pd_width(((uint64_t)PD_Z * pd_root(totals, output) + 0x8000u) >> 16, output);
}

/* Quantile p / 65536 of the samples' functions. */
static inline int32_t pd_function_quantile(const int32_t *totals, uint16_t output, uint32_t p)
{
    return pd_value((int64_t)PD_N_SAMPLES * pd_quantile(totals, output, p), output);
}

/* Ends of the central interval of the samples' functions with probability PD_LEVEL. */
static inline void pd_function_ends(const int32_t *totals, uint16_t output, int32_t *low, int32_t *high)
{
    int32_t first = pd_function_quantile(totals, output, PD_LOW);
    int32_t last = pd_function_quantile(totals, output, UINT32_C(65536) - PD_LOW);
    *low = first < last ? first : last;
    *high = first < last ? last : first;
}

//@if classes
/* ------------------------------------------------------------------------------------------------------------ classes

   Counts of logits below the largest one become 2^-(u / 65536), and these shares of their sum. */

/* part / whole in units of 2^-bits, rounded; part <= whole <= 2^31. */
static inline uint32_t pd_ratio(uint32_t part, uint32_t whole, uint8_t bits)
{
    uint32_t quotient = part >= whole, rest = part - (quotient ? whole : 0);
    for (; bits > 0; --bits) {
        quotient <<= 1;
        rest <<= 1;
        if (rest >= whole) {
            rest -= whole;
            ++quotient;
        }
    }
    return quotient + (rest >= whole - rest);
}

/* 2^-(u / 65536) in units of 2^-PD_EXPONENT_BITS. */
static inline uint32_t pd_power_of_two(uint64_t u)
{
    static const uint32_t coefficients[] = {PD_POLYNOMIAL};
    uint32_t value = 0, whole = u >> 16 > 31u ? 31u : (uint32_t)(u >> 16);
    uint8_t k;
    for (k = 0; k < 5; ++k) {
        value = coefficients[k] - (uint32_t)(((uint64_t)value * (uint32_t)(u & 0xFFFFu)) >> 16);
    }
    return value >> (30 - PD_EXPONENT_BITS) >> whole;
}

/* Index of the most probable class by the mean logit. */
static inline uint16_t pd_class(const int32_t *totals)
{
//@if two_classes
    return pd_mean(totals, 0) > 0;
//@else
    int32_t largest = pd_mean(totals, 0);
    uint16_t k, best = 0;
    for (k = 1; k < PD_N_OUTPUTS; ++k) {
        int32_t mean = pd_mean(totals, k);
        if (mean > largest) {
            largest = mean;
            best = k;
        }
    }
    return best;
//@end
}

/* Probabilities of the classes, averaged over the samples, in units of 1/32768. */
static inline void pd_probabilities(const int32_t *totals, uint16_t *probability)
{
    int32_t logits[PD_N_CLASSES];
    uint32_t powers[PD_N_CLASSES], shares[PD_N_CLASSES];
    uint16_t k, s;
    for (k = 0; k < PD_N_CLASSES; ++k) {
        logits[k] = 0;
        shares[k] = 0;
    }
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        uint32_t sum = 0;
        int32_t largest;
        for (k = 0; k < PD_N_OUTPUTS; ++k) {
            logits[PD_N_CLASSES - PD_N_OUTPUTS + k] = pd_value((int64_t)PD_N_SAMPLES * totals[k * PD_N_SAMPLES + s], k);
        }
        largest = logits[0];
        for (k = 1; k < PD_N_CLASSES; ++k) {
            largest = logits[k] > largest ? logits[k] : largest;
        }
        for (k = 0; k < PD_N_CLASSES; ++k) {
            uint64_t below = (uint32_t)largest - (uint32_t)logits[k];
            powers[k] = pd_power_of_two((below * PD_LOGIT_FACTOR) >> PD_LOGIT_SHIFT);
            sum += powers[k];
        }
        for (k = 0; k < PD_N_CLASSES; ++k) {
            shares[k] += pd_ratio(powers[k], sum, 23);
        }
    }
    for (k = 0; k < PD_N_CLASSES; ++k) {
        probability[k] = (uint16_t)pd_ratio(shares[k], (uint32_t)PD_N_SAMPLES << 23, 15);
    }
//@if two_classes
    probability[0] = (uint16_t)(0x8000u - probability[1]);
//@end
}

//@end
