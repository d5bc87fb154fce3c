//@if fourier
/* Sine of a phase in 2^-32 turns, in units of 1/PD_ONE. */
static inline int32_t pd_sine(uint32_t phase)
{
    uint32_t position = phase & UINT32_C(0x3FFFFFFF);
    uint8_t interval;
    int32_t value;
    if (phase & UINT32_C(0x40000000)) {
        position = UINT32_C(0x3FFFFFFF) - position;
    }
    interval = (uint8_t)(position >> 24);
    value = PD_READ_16(pd_sine_table + interval);
    value += ((PD_READ_16(pd_sine_table + interval + 1) - value) * (int32_t)((position >> 9) & 0x7FFFu)
              + INT32_C(0x4000)) >> 15; /* the table ascends: nothing here is negative */
    return (phase & UINT32_C(0x80000000)) ? -value : value;
}

/* Phase of frequency f in 2^-32 turns, modulo one turn. */
static inline uint32_t pd_phase(uint16_t f, const pd_input *q)
{
    uint32_t phase = 0;
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        int32_t frequency = PD_READ_FREQUENCY(pd_frequencies + (uint32_t)f * PD_N_INPUTS + i);
        phase += ((uint32_t)frequency * (uint32_t)(int32_t)q[i]) << PD_READ_8U(pd_phase_shift + i);
    }
    return phase;
}

//@end
/* Basis function j, called in ascending order: a sine reuses the phase of its cosine. */
static inline int32_t pd_feature(uint16_t j, const pd_input *q, uint32_t *phase)
{
//@if fourier
    if (j < 2u * PD_N_FREQUENCIES) {
        if (j & 1u) {
            return pd_sine(*phase);
        }
        *phase = pd_phase((uint16_t)(j >> 1), q);
        return pd_sine(*phase + UINT32_C(0x40000000));
    }
//@end
//@if linear
    if (j < PD_FIRST_LINEAR + PD_N_LINEAR) {
        int32_t v = q[PD_READ_COLUMN(pd_linear + (j - PD_FIRST_LINEAR))];
        v = pd_clip(v, PD_LINEAR_LIMIT);
        return v;
    }
//@end
    (void)j;
    (void)q;
    (void)phase;
    return PD_ONE;
}

//@if forest
/* Leaf of the tree whose first leaf is basis function j, from 0 on: a comparison per level. */
static inline uint16_t pd_leaf(uint16_t j, const pd_input *q)
{
    uint16_t at = (uint16_t)((j >> PD_DEPTH) * PD_DEPTH), leaf = 0;
    uint8_t level;
    for (level = 0; level < PD_DEPTH; ++level) {
        uint16_t split = PD_READ_SPLIT(pd_splits + at + level);
        leaf = (uint16_t)(leaf << 1 | (q[PD_READ_SPLIT_INPUT(pd_split_input + split)] > PD_READ_THRESHOLD(pd_threshold + split)));
    }
    return leaf;
}

//@end
/* Totals of all columns from quantised inputs; column = output * PD_N_SAMPLES + sample. */
static inline void pd_totals(const pd_input *q, int32_t *totals)
{
    uint32_t accumulators[PD_N_COLUMNS], phase = 0;
//@if sparse
    pd_reader reader = {UINT32_MAX, 0}; /* one before the first code */
    uint32_t row_end = 0;
//@else
    uint32_t next = 0;
//@end
    uint16_t group, column, j = 0;
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        totals[column] = 0;
    }
//@if sparse
    pd_advance(&reader);
//@end
    for (group = 0; group < PD_N_GROUPS; ++group) {
        uint16_t end = PD_READ_16U(pd_group_end + group);
        int32_t gain = PD_READ_GAIN(pd_group_gain + group);
        uint8_t shift = PD_READ_8U(pd_group_shift + group);
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            accumulators[column] = 0;
        }
//@if forest
        for (; j < end && j < PD_N_LEAVES; j = (uint16_t)(j + (1u << PD_DEPTH))) {
            next = (uint32_t)(j + pd_leaf(j, q)) * PD_N_COLUMNS;
            for (column = 0; column < PD_N_COLUMNS; ++column) {
                accumulators[column] = pd_add_product(accumulators[column], 1, pd_code(next));
                ++next;
            }
        }
        next = (uint32_t)j * PD_N_COLUMNS;
//@end
        for (; j < end; ++j) {
            int32_t feature = pd_feature(j, q, &phase);
//@if sparse
            uint32_t row = row_end;
            row_end += PD_N_COLUMNS;
            for (; reader.next < row_end; pd_advance(&reader)) {
                column = (uint16_t)(reader.next - row);
                accumulators[column] = pd_add_product(accumulators[column], feature, pd_code(&reader));
            }
//@else
            for (column = 0; column < PD_N_COLUMNS; ++column) {
                accumulators[column] = pd_add_product(accumulators[column], feature, pd_code(next));
                ++next;
            }
//@end
        }
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            totals[column] += gain * pd_round_shift(pd_signed(accumulators[column]), shift);
        }
    }
}

