/* ------------------------------------------------------------------------------------------------- integer arithmetic

   Nothing below overflows, whatever the inputs: the exporter has proved it from the tables. Unsigned arithmetic wraps
   around intentionally; no negative number is shifted; no int is assumed to be wider than 16 bits. */

/* A quantised input plus 32768. */
typedef uint16_t pd_input;

/* v / 2^shift rounded to the nearest integer, halves up; v is at most 2^30 in magnitude. */
static inline int32_t pd_shifted(int32_t v, uint8_t shift)
{
    const uint32_t middle = UINT32_C(1) << 30;
    return (int32_t)(((uint32_t)v + middle + ((UINT32_C(1) << shift) >> 1)) >> shift) - (int32_t)(middle >> shift);
}

//@if single
/* Code number i; together the codes are one little-endian number, the first one in its lowest bits. */
static inline uint8_t pd_code(PD_INDEX i)
{
//@if bits2
    return (uint8_t)(PD_READ_8U(pd_codes + (i >> 2)) >> (2u * (i & 3u))) & 3u;
//@end
//@if bits4
    return (uint8_t)(PD_READ_8U(pd_codes + (i >> 1)) >> (4u * (i & 1u))) & 15u;
//@end
//@if bits8
    return PD_READ_8U(pd_codes + i);
//@end
}

//@end
//@if fourier
/* Sine of a phase in 2^-32 turns, in units of 2^-15. */
static inline int32_t pd_sine(uint32_t phase)
{
    uint16_t turn = (uint16_t)((phase + 0x8000u) >> 16);
    uint32_t p = turn & 0x3FFFu, z;
    int32_t value;
    if (turn & 0x4000u) {
        p = 0x4000u - p;
    }
    z = (p * p) >> 12;
    z = PD_SINE_1 - ((z * (PD_SINE_2 - ((z * PD_SINE_3) >> 16))) >> 16);
    value = (int32_t)((p * z + 0x2000u) >> 14);
    return turn & 0x8000u ? -value : value;
}

/* Phase of frequency f in 2^-32 turns, modulo one turn. */
static inline uint32_t pd_phase(PD_INDEX f, const pd_input *q)
{
    uint32_t phase = 0;
    PD_INDEX i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        int32_t frequency = PD_READ_FREQUENCIES(pd_frequencies + f * PD_N_INPUTS + i);
        phase += ((uint32_t)frequency * (q[i] - UINT32_C(32768))) << PD_READ_8U(pd_phase_shift + i);
    }
    return phase;
}

//@end
//@if groups
/* Adds the terms with codes to the totals of all columns; column = output * PD_N_SAMPLES + sample. A term is a basis
   function, or a tree, of whose leaves one is taken. */
static inline void pd_add_terms(const pd_input *q, int32_t *totals)
{
    PD_INDEX group, column, term = 0;
//@if forest
    PD_INDEX question = 0;
    int32_t gain = PD_FIRST_GAIN;
    for (group = 0; group < PD_N_GROUPS; ++group, gain >>= 1) {
        PD_INDEX end = PD_READ_GROUP_END(pd_group_end + group);
//@else
    uint32_t phase = 0;
    for (group = 0; group < PD_N_GROUPS; ++group) {
        PD_INDEX end = PD_READ_GROUP_END(pd_group_end + group);
        int32_t gain = PD_READ_GROUP_GAIN(pd_group_gain + group);
//@end
        for (; term < end; ++term) {
            PD_INDEX code = term;
//@if forest
            int32_t value = gain;
            PD_INDEX level;
            for (level = 0; level < PD_DEPTH; ++level) {
                uint32_t split = PD_READ_16U(pd_splits + question++);
                code = code << 1 | (PD_INDEX)((split - q[split & PD_INPUT_MASK]) >> 31); /* the input is larger */
            }
//@else
            int32_t value = PD_ONE;
            if (term < 2u * PD_N_FREQUENCIES) {
                phase += UINT32_C(0xC0000000); /* the sine follows the cosine of the same phase */
                if (!(term & 1u)) {
                    phase = pd_phase(term >> 1, q) + UINT32_C(0x40000000);
                }
                value = pd_sine(phase);
            }
//@if linear
            if (term - 2u * PD_N_FREQUENCIES < PD_N_LINEAR) {
                value = q[PD_LINEAR(term - 2u * PD_N_FREQUENCIES)] - INT32_C(32768);
            }
//@end
            value = pd_shifted(value * gain, 15);
//@end
            code *= PD_N_COLUMNS;
//@if single
            for (column = 0; column < PD_N_COLUMNS; ++column, ++code) {
//@if even
                totals[column] += value * (PD_FIRST_LEVEL + PD_LEVEL_STEP * (int32_t)pd_code(code));
//@else
                totals[column] += value * PD_READ_MULTIPLIERS(pd_multipliers + pd_code(code));
//@end
            }
//@else
            code >>= 1; /* two codes in a byte */
            for (column = 0; column < PD_N_COLUMNS; column += 2, ++code) {
                uint8_t both = PD_READ_8U(pd_codes + code);
//@if even
                totals[column] += value * (PD_FIRST_LEVEL + PD_LEVEL_STEP * (int32_t)(both & 15u));
                totals[column + 1] += value * (PD_FIRST_LEVEL + PD_LEVEL_STEP * (int32_t)(both >> 4));
//@else
                totals[column] += value * PD_READ_MULTIPLIERS(pd_multipliers + (both & 15u));
                totals[column + 1] += value * PD_READ_MULTIPLIERS(pd_multipliers + (both >> 4));
//@end
            }
//@end
        }
    }
}

//@end
/* Sum of an output's totals over the samples. */
static inline int32_t pd_sum(const int32_t *totals, PD_INDEX output)
{
    int32_t sum = 0;
    PD_INDEX s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        sum += totals[output * PD_N_SAMPLES + s];
    }
    return sum;
}

/* Standard deviation of an output over the samples, with the noise, in units of its totals, with eight more bits. */
static inline uint32_t pd_root(const int32_t *totals, PD_INDEX output)
{
//@if several
    int32_t sum = pd_sum(totals, output);
    uint32_t squares = PD_READ_32U(pd_noise + output), root = 0, rest = 0;
    PD_INDEX s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        int32_t deviation = pd_shifted(PD_N_SAMPLES * totals[output * PD_N_SAMPLES + s] - sum, PD_DEVIATION_SHIFT);
        squares += (uint32_t)(deviation * deviation);
    }
    for (s = 0; s < 24; ++s) { /* digit by digit */
        rest = rest << 2 | squares >> 30;
        squares <<= 2;
        root <<= 1;
        if (rest > root << 1) {
            rest -= root << 1 | 1u;
            ++root;
        }
    }
    return root;
//@else
    (void)totals;
    (void)output;
    return UINT32_C(1) << 23;
//@end
}

/* ------------------------------------------------------------------------------------------------------------ results */

//@if fixed
/* (v * gain + offset) / 2^shift rounded to the nearest integer, halves away from zero. */
static inline int64_t pd_affine(int64_t v, int32_t gain, int64_t offset, uint8_t shift)
{
    int64_t t = v * gain + offset;
    uint64_t half = ((uint64_t)1 << shift) >> 1;
    uint64_t size = ((t < 0 ? (uint64_t)0 - (uint64_t)t : (uint64_t)t) + half) >> shift;
    return t < 0 ? -(int64_t)size : (int64_t)size;
}

/* Counts of a function from the sum of its totals over PD_N_SAMPLES samples, or from PD_N_SAMPLES times its own. */
static inline int32_t pd_count(int32_t sum, PD_INDEX output)
{
    return (int32_t)pd_affine(sum, PD_READ_32(pd_count_gain + output), pd_count_offset[output],
                              PD_READ_8U(pd_count_shift + output));
}

//@end
/* x has PD_N_FEATURES_IN numbers. */
//@if counts
typedef int32_t pd_number;

/* Input i of a row of counts. */
static inline pd_input pd_quantise(const pd_number *x, PD_INDEX i)
{
    int64_t v = (int64_t)x[PD_COLUMN(i)] - PD_READ_32(pd_input_origin + i);
    v = pd_affine(v, PD_READ_32(pd_input_multiplier + i), PD_READ_32(pd_input_offset + i),
                  PD_READ_8U(pd_input_shift + i));
    return (pd_input)((v > PD_LIMIT ? PD_LIMIT : v < -PD_LIMIT ? -PD_LIMIT : v) + 32768);
}

static inline pd_number pd_mean(const int32_t *totals, PD_INDEX output)
{
    return pd_count(pd_sum(totals, output), output);
}

static inline pd_number pd_width(uint32_t root, int32_t gain, PD_INDEX output)
{
    return (int32_t)pd_affine((int64_t)root, gain, 0, PD_READ_8U(pd_width_shift + output));
}

static inline pd_number pd_std(const int32_t *totals, PD_INDEX output)
{
    return pd_width(pd_root(totals, output), PD_READ_32(pd_width_gain + output), output);
}

/* Half-width of the central Gaussian interval with probability PD_LEVEL. */
static inline pd_number pd_half_width(const int32_t *totals, PD_INDEX output)
{
    return pd_width(pd_root(totals, output), PD_READ_32(pd_interval_gain + output), output);
}
//@else
typedef float pd_number;

/* Every operation is rounded to single precision. */
#if FLT_EVAL_METHOD == 0
typedef float pd_rounded;
#else
typedef volatile float pd_rounded;
#endif

//@if short
/* A number of single precision from its upper half. */
static inline float pd_float(uint16_t half)
{
    union {
        uint32_t bits;
        float number;
    } word;
    word.bits = (uint32_t)half << 16;
    return word.number;
}

//@end
/* Input i of a row. */
static inline pd_input pd_quantise(const pd_number *x, PD_INDEX i)
{
    pd_rounded v = x[PD_COLUMN(i)];
//@if short
    v = v - pd_float(PD_READ_16U(pd_origin + i));
    v = v * pd_float(PD_READ_16U(pd_multiplier + i));
//@else
    v = v - PD_READ_FLOAT(pd_origin + i);
    v = v * PD_READ_FLOAT(pd_multiplier + i);
//@end
    if (!(v > -(float)PD_LIMIT)) {
        v = -(float)PD_LIMIT;
    }
    if (v > (float)PD_LIMIT) {
        v = (float)PD_LIMIT;
    }
    v = v + 32768.5f;
    return (pd_input)v;
}

static inline pd_number pd_mean(const int32_t *totals, PD_INDEX output)
{
    volatile float v = (float)pd_sum(totals, output) * PD_READ_FLOAT(pd_scale + output); /* not fused with the sum */
    return v + PD_READ_FLOAT(pd_offset + output);
}

static inline pd_number pd_std(const int32_t *totals, PD_INDEX output)
{
    return (float)pd_root(totals, output) * PD_READ_FLOAT(pd_std_scale + output);
}

/* Half-width of the central Gaussian interval with probability PD_LEVEL. */
static inline pd_number pd_half_width(const int32_t *totals, PD_INDEX output)
{
    volatile float v = (float)pd_root(totals, output) * PD_READ_FLOAT(pd_interval_scale + output);
    return v;
}
//@end

/* Totals of all columns for a row. */
static inline void pd_run(const pd_number *x, int32_t *totals)
{
//@if groups
    pd_input q[PD_N_INPUTS];
//@end
    PD_INDEX i, column;
    for (column = 0; column < PD_N_COLUMNS; ++column) {
//@if start
        totals[column] = PD_READ_32(pd_start + column);
//@else
        *(PD_ZEROED int32_t *)(totals + column) = 0;
//@end
    }
    for (i = 0; i < PD_N_INPUTS; ++i) {
        pd_input input = pd_quantise(x, i);
//@if slope
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            totals[column] += (input - INT32_C(32768)) * PD_READ_SLOPE(pd_slope + i * PD_N_COLUMNS + column);
        }
//@end
//@if groups
        q[i] = input;
//@end
    }
//@if groups
    pd_add_terms(q, totals);
//@end
//@if shift
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        totals[column] = pd_shifted(totals[column], PD_TOTAL_SHIFT);
    }
//@end
}

/* Mean and standard deviation of every output, noise included. */
static inline void pd_predict(const pd_number *x, pd_number *mean, pd_number *std)
{
    int32_t totals[PD_N_COLUMNS];
    PD_INDEX output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        mean[output] = pd_mean(totals, output);
        std[output] = pd_std(totals, output);
    }
}

/* Central intervals that contain the target with probability PD_LEVEL. */
static inline void pd_predict_interval(const pd_number *x, pd_number *lower, pd_number *upper)
{
    int32_t totals[PD_N_COLUMNS];
    PD_INDEX output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        pd_number mean = pd_mean(totals, output), half = pd_half_width(totals, output);
        lower[output] = mean - half;
        upper[output] = mean + half;
    }
}

//@if classes
/* ------------------------------------------------------------------------------------------------------------ classes

   Counts of logits below the largest one become 2^-(count / 2^PD_LOGIT_BITS), and these shares of their sum. */

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

/* 2^-(count / 2^PD_LOGIT_BITS) in units of 2^-PD_EXPONENT_BITS. */
static inline uint32_t pd_power_of_two(uint32_t count)
{
    static const uint32_t coefficients[] = {PD_POLYNOMIAL};
    uint32_t value = 0, whole = count >> PD_LOGIT_BITS, fraction = (count << (16 - PD_LOGIT_BITS)) & 0xFFFFu;
    uint8_t k;
    for (k = 0; k < 5; ++k) {
        value = coefficients[k] - (uint32_t)(((uint64_t)value * fraction) >> 16);
    }
    return whole > 31u ? 0 : value >> (30 - PD_EXPONENT_BITS) >> whole;
}

/* Index of the most probable class by the mean logit. */
static inline uint16_t pd_predict_class(const pd_number *x)
{
    int32_t totals[PD_N_COLUMNS];
//@if two_classes
    pd_run(x, totals);
    return pd_count(pd_sum(totals, 0), 0) > 0;
//@else
    int32_t largest = INT32_MIN;
    uint16_t k, best = 0;
    pd_run(x, totals);
    for (k = 0; k < PD_N_OUTPUTS; ++k) {
        int32_t mean = pd_count(pd_sum(totals, k), k);
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
    PD_INDEX k, s;
    for (k = 0; k < PD_N_CLASSES; ++k) {
        logits[k] = 0;
        shares[k] = 0;
    }
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        uint32_t sum = 0;
        int32_t largest;
        for (k = 0; k < PD_N_OUTPUTS; ++k) {
            logits[PD_N_CLASSES - PD_N_OUTPUTS + k] = pd_count(PD_N_SAMPLES * totals[k * PD_N_SAMPLES + s], k);
        }
        largest = logits[0];
        for (k = 1; k < PD_N_CLASSES; ++k) {
            largest = logits[k] > largest ? logits[k] : largest;
        }
        for (k = 0; k < PD_N_CLASSES; ++k) {
            powers[k] = pd_power_of_two((uint32_t)largest - (uint32_t)logits[k]);
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

/* Probabilities of the PD_N_CLASSES classes in units of 1/32768. */
static inline void pd_predict_proba(const pd_number *x, uint16_t *probability)
{
    int32_t totals[PD_N_COLUMNS];
    pd_run(x, totals);
    pd_probabilities(totals, probability);
}

//@end
/* Compares PD_N_TESTS rows with the results of Python. Returns 0 when all agree, else the row's number from 1 on. */
static inline int pd_self_test(void)
{
    pd_number x[PD_N_FEATURES_IN], mean[PD_N_OUTPUTS], std[PD_N_OUTPUTS];
    int32_t totals[PD_N_COLUMNS];
    PD_INDEX row, i;
    for (row = 0; row < PD_N_TESTS; ++row) {
        for (i = 0; i < PD_N_FEATURES_IN; ++i) {
            x[i] = PD_READ_NUMBER(pd_test_x + row * PD_N_FEATURES_IN + i);
        }
        pd_run(x, totals);
        for (i = 0; i < PD_N_COLUMNS; ++i) {
            if (totals[i] != PD_READ_32(pd_test_totals + row * PD_N_COLUMNS + i)) {
                return (int)row + 1;
            }
        }
        pd_predict(x, mean, std);
        for (i = 0; i < PD_N_OUTPUTS; ++i) {
            PD_INDEX at = row * PD_N_OUTPUTS + i;
            if (mean[i] != PD_READ_NUMBER(pd_test_mean + at) || std[i] != PD_READ_NUMBER(pd_test_std + at)) {
                return (int)row + 1;
            }
        }
//@if classes
        {
            uint16_t probability[PD_N_CLASSES];
            pd_predict_proba(x, probability);
            for (i = 0; i < PD_N_CLASSES; ++i) {
                if (probability[i] != PD_READ_16U(pd_test_probability + row * PD_N_CLASSES + i)) {
                    return (int)row + 1;
                }
            }
        }
//@end
    }
    return 0;
}
