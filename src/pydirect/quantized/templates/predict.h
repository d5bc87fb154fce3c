/* ---------------------------------------------------------------------------------------------------- from x to results

   x has PD_N_FEATURES_IN numbers. */

//@if counts
typedef int32_t pd_number;
#define PD_IN_UNITS(counts, output) (counts)

/* Quantise a row of counts. */
static inline void pd_quantise(const pd_number *x, pd_input *q)
{
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        int64_t v = (int64_t)x[PD_READ_COLUMN(pd_columns + i)] - PD_READ_32(pd_input_origin + i);
        int64_t limit = PD_READ_LIMIT(i);
        v = pd_affine(v, PD_READ_32(pd_input_multiplier + i), PD_READ_32(pd_input_offset + i),
                      PD_READ_8U(pd_input_shift + i));
        q[i] = (pd_input)(v > limit ? limit : v < -limit ? -limit : v);
    }
}
//@else
typedef float pd_number;
#define PD_IN_UNITS(counts, output) ((float)(counts) * PD_READ_FLOAT(pd_unit + (output)))

/* Quantise a row. Every operation is rounded to single precision. */
static inline void pd_quantise(const pd_number *x, pd_input *q)
{
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        float limit = (float)PD_READ_LIMIT(i);
        volatile float v = x[PD_READ_COLUMN(pd_columns + i)];
        v = v - PD_READ_FLOAT(pd_origin + i);
        v = v * PD_READ_FLOAT(pd_multiplier + i);
        if (!(v > -limit)) {
            v = -limit;
        }
        if (v > limit) {
            v = limit;
        }
        v = v < 0.0f ? v - 0.5f : v + 0.5f;
        q[i] = (pd_input)v;
    }
}
//@end

/* Totals of all columns for a row. */
static inline void pd_run(const pd_number *x, int32_t *totals)
{
    pd_input q[PD_N_INPUTS];
    pd_quantise(x, q);
    pd_totals(q, totals);
}

//@if classes
/* Index of the most probable class by the mean logit. */
static inline uint16_t pd_predict_class(const pd_number *x)
{
    int32_t totals[PD_N_COLUMNS];
    pd_run(x, totals);
    return pd_class(totals);
}

/* Probabilities of the PD_N_CLASSES classes in units of 1/32768. */
static inline void pd_predict_proba(const pd_number *x, uint16_t *probability)
{
    int32_t totals[PD_N_COLUMNS];
    pd_run(x, totals);
    pd_probabilities(totals, probability);
}

//@end
/* Mean and standard deviation of every output, noise included. */
static inline void pd_predict(const pd_number *x, pd_number *mean, pd_number *std)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        mean[output] = PD_IN_UNITS(pd_mean(totals, output), output);
        std[output] = PD_IN_UNITS(pd_std(totals, output), output);
    }
}

/* Central intervals that contain the target with probability PD_LEVEL. */
static inline void pd_predict_interval(const pd_number *x, pd_number *lower, pd_number *upper)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        int32_t mean = pd_mean(totals, output), half = pd_half_width(totals, output);
        lower[output] = PD_IN_UNITS(mean - half, output);
        upper[output] = PD_IN_UNITS(mean + half, output);
    }
}

/* Central intervals of the samples' functions, without noise, with probability PD_LEVEL. */
static inline void pd_predict_function_interval(const pd_number *x, pd_number *lower, pd_number *upper)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        int32_t low, high;
        pd_function_ends(totals, output, &low, &high);
        lower[output] = PD_IN_UNITS(low, output);
        upper[output] = PD_IN_UNITS(high, output);
    }
}

/* --------------------------------------------------------------------------------------------------------- self-test

   Compares PD_N_TESTS rows with the results of Python. Returns 0 when all agree, else the row's number from 1 on. */
static inline int pd_self_test(void)
{
    pd_number x[PD_N_FEATURES_IN];
    pd_input q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t row, i;
    for (row = 0; row < PD_N_TESTS; ++row) {
        for (i = 0; i < PD_N_FEATURES_IN; ++i) {
            x[i] = PD_READ_NUMBER(pd_test_x + (uint32_t)row * PD_N_FEATURES_IN + i);
        }
        pd_quantise(x, q);
        for (i = 0; i < PD_N_INPUTS; ++i) {
            if (q[i] != PD_READ_INPUT(pd_test_q + (uint32_t)row * PD_N_INPUTS + i)) {
                return (int)row + 1;
            }
        }
        pd_totals(q, totals);
        for (i = 0; i < PD_N_COLUMNS; ++i) {
            if (totals[i] != PD_READ_32(pd_test_totals + (uint32_t)row * PD_N_COLUMNS + i)) {
                return (int)row + 1;
            }
        }
        for (i = 0; i < PD_N_OUTPUTS; ++i) {
            uint32_t at = (uint32_t)row * PD_N_OUTPUTS + i;
            int32_t low, high;
            pd_function_ends(totals, i, &low, &high);
            if (pd_mean(totals, i) != PD_READ_32(pd_test_mean + at)
                || pd_std(totals, i) != PD_READ_32(pd_test_std + at)
                || low != PD_READ_32(pd_test_low + at) || high != PD_READ_32(pd_test_high + at)) {
                return (int)row + 1;
            }
        }
//@if classes
        {
            uint16_t probability[PD_N_CLASSES];
            pd_probabilities(totals, probability);
            for (i = 0; i < PD_N_CLASSES; ++i) {
                if (probability[i] != PD_READ_16U(pd_test_probability + (uint32_t)row * PD_N_CLASSES + i)) {
                    return (int)row + 1;
                }
            }
        }
//@end
    }
    return 0;
}
