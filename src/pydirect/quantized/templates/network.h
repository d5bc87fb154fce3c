/* Network inputs, repeated for all columns. */
static inline void pd_network_inputs(const pd_input *q, int16_t *state)
{
    uint16_t k, i, column;
    for (k = 0; k < PD_N_NETWORK_INPUTS; ++k) {
        int64_t sum = pd_rotation_offset[k];
        for (i = 0; i < PD_N_INPUTS; ++i) {
            sum += (int64_t)PD_READ_32(pd_rotation + (uint32_t)k * PD_N_INPUTS + i) * q[i];
        }
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            *state++ = (int16_t)pd_cut(sum, PD_READ_8U(pd_rotation_shift + k));
        }
    }
}

/* Factor of a weight's level: its input, times its spread if it has one. */
static inline int32_t pd_factor(int32_t x, uint32_t weight, uint16_t column)
{
//@if affine
    return x * PD_READ_SPREAD(pd_spread + weight * PD_N_OUTPUTS + column / PD_N_SAMPLES);
//@else
    (void)weight;
    (void)column;
    return x;
//@end
}

/* Totals of all columns from quantised inputs; column = output * PD_N_SAMPLES + sample. Weights are read in order, each
   for all columns. */
static inline void pd_totals(const pd_input *q, int32_t *totals)
{
    int16_t states[2][(PD_WIDEST + 1u) * (uint32_t)PD_N_COLUMNS];
    uint32_t accumulators[PD_N_COLUMNS], weight = 0;
//@if sparse
    pd_reader reader = {UINT32_MAX, 0}; /* one before the first code */
    uint32_t row = 0;
//@else
    uint32_t next = 0;
//@end
    uint16_t layer, unit, i, column;
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        totals[column] = 0; /* the compiler cannot know that there is an output layer */
    }
    pd_network_inputs(q, states[0]);
//@if sparse
    pd_advance(&reader);
//@end
    for (layer = 0; layer < PD_N_LAYERS; ++layer) {
        int16_t *from = states[layer & 1u], *to = states[1u - (layer & 1u)];
        uint16_t n_inputs = PD_READ_16U(pd_widths + layer), n_units = PD_READ_16U(pd_widths + layer + 1);
//@if bias
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            from[(uint32_t)n_inputs * PD_N_COLUMNS + column] = (int16_t)PD_READ_16(pd_ones + layer);
        }
        ++n_inputs;
//@end
        for (unit = 0; unit < n_units; ++unit) {
            const int16_t *x = from;
            for (column = 0; column < PD_N_COLUMNS; ++column) {
                accumulators[column] = 0;
            }
            for (i = 0; i < n_inputs; ++i, ++weight, x += PD_N_COLUMNS) {
//@if affine
                for (column = 0; column < PD_N_COLUMNS; ++column) {
                    int32_t centre = PD_READ_CENTRE(pd_centre + weight * PD_N_OUTPUTS + column / PD_N_SAMPLES);
                    accumulators[column] += (uint32_t)(centre * x[column]);
                }
//@end
//@if sparse
                for (; reader.next < row + PD_N_COLUMNS; pd_advance(&reader)) {
                    column = (uint16_t)(reader.next - row);
                    accumulators[column] = pd_add_product(accumulators[column], pd_factor(x[column], weight, column),
                                                          pd_code(&reader));
                }
                row += PD_N_COLUMNS;
//@else
                for (column = 0; column < PD_N_COLUMNS; ++column, ++next) {
                    accumulators[column] = pd_add_product(accumulators[column], pd_factor(x[column], weight, column),
                                                          pd_code(next));
                }
//@end
            }
            for (column = 0; column < PD_N_COLUMNS; ++column) {
                int32_t sum = pd_signed(accumulators[column]);
                if (layer + 1u < PD_N_LAYERS) {
                    int32_t a = pd_cut((int64_t)sum * PD_READ_32(pd_rescale + layer),
                                       PD_READ_8U(pd_rescale_shift + layer));
                    to[(uint32_t)unit * PD_N_COLUMNS + column] = (int16_t)pd_round_shift(a * a, 15);
                } else {
                    totals[column] = sum;
                }
            }
        }
    }
}

