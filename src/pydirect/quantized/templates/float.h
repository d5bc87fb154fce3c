/* --------------------------------------------------------------------------------------------------- floating point */

static inline pd_real pd_cut(pd_real v, pd_real limit)
{
    return v > limit ? limit : v < -limit ? -limit : v;
}

//@if knots
/* Normal score of a column's value: interpolated between the knots, constant beyond them. */
static inline pd_real pd_score(uint16_t column, pd_real v)
{
    uint32_t low = pd_knots_begin[column], high = pd_knots_begin[column + 1] - 1;
    if (v <= pd_knots[low]) {
        return pd_scores[low];
    }
    if (v >= pd_knots[high]) {
        return pd_scores[high];
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (v < pd_knots[middle]) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return pd_scores[low]
           + (pd_scores[high] - pd_scores[low]) / (pd_knots[high] - pd_knots[low]) * (v - pd_knots[low]);
}

//@end
/* Standardised columns of a row of PD_N_FEATURES_IN numbers, and their normal scores. */
static inline void pd_map_inputs(const pd_real *x, pd_real *inputs)
{
    uint16_t i;
    for (i = 0; i < PD_N_KEPT; ++i) {
        pd_real v = x[pd_columns[i]];
//@if single
        inputs[i] = pd_cut(((v - pd_input_mean[i]) - pd_input_mean_rest[i]) / pd_input_scale[i], PD_LARGEST);
//@else
        inputs[i] = pd_cut((v - pd_input_mean[i]) / pd_input_scale[i], PD_LARGEST);
//@end
    }
//@if knots
    for (i = 0; i < PD_N_SCORED; ++i) {
        inputs[PD_N_KEPT + i] = pd_score(i, x[pd_scored[i]]);
    }
//@end
}

//@if network
/* Output of one network, whose weights are those of a column. */
static inline pd_real pd_network(const pd_real *inputs, uint16_t column)
{
    pd_real state[PD_WIDEST], next[PD_WIDEST];
    uint16_t layer, unit, i, output = (uint16_t)(column / PD_N_SAMPLES);
    uint32_t weight = 0;
    for (i = 0; i < pd_widths[0]; ++i) {
        state[i] = inputs[i];
    }
    for (layer = 0; layer < PD_N_LAYERS; ++layer) {
        uint16_t fan_in = pd_widths[layer];
        for (unit = 0; unit < pd_widths[layer + 1]; ++unit) {
            pd_real sum = 0;
            for (i = 0; i < fan_in + PD_BIAS; ++i, ++weight) {
                pd_real level = pd_levels[pd_code(weight * PD_N_COLUMNS + column)];
                pd_real value = pd_centre[weight * PD_N_OUTPUTS + output]
                                + pd_spread[weight * PD_N_OUTPUTS + output] * level;
                sum += i < fan_in ? value * state[i] : value;
            }
            next[unit] = layer + 1 < PD_N_LAYERS ? sum * sum : sum;
        }
        for (unit = 0; unit < pd_widths[layer + 1]; ++unit) {
            state[unit] = next[unit];
        }
    }
    return state[0];
}

/* Values of the samples' functions: middle[output] + parts[column] for column = output * PD_N_SAMPLES + sample. They
   account for all variance of a network. */
static inline void pd_functions(const pd_real *x, pd_real *middle, pd_real *parts, pd_real *missing)
{
    pd_real mapped[PD_N_MAPPED], inputs[PD_WIDEST];
    uint16_t i, j;
    pd_map_inputs(x, mapped);
    for (i = 0; i < PD_N_OUTPUTS; ++i) {
        middle[i] = pd_offset[i];
        missing[i] = 0;
    }
    for (i = 0; i < PD_N_INPUTS; ++i) {
        inputs[i] = 0;
        for (j = 0; j < PD_N_MAPPED; ++j) {
            inputs[i] += mapped[j] * pd_matrix[(uint32_t)j * PD_N_INPUTS + i];
        }
        inputs[i] = pd_cut(inputs[i], PD_LARGEST_INPUT);
    }
    for (j = 0; j < PD_N_COLUMNS; ++j) {
        uint16_t output = (uint16_t)(j / PD_N_SAMPLES);
        parts[j] = pd_scale[output] * pd_network(inputs, j);
    }
}
//@else
/* All basis functions of the feature map. */
static inline void pd_basis(const pd_real *inputs, pd_real *phi)
{
    uint16_t i;
//@if fourier
    uint16_t f;
    for (f = 0; f < PD_N_FREQUENCIES; ++f) {
        pd_real phase = 0;
        for (i = 0; i < PD_N_MAPPED; ++i) {
            phase += inputs[i] * pd_frequencies[(uint32_t)f * PD_N_MAPPED + i];
        }
        phi[f] = pd_amplitudes[f] * PD_COS(phase);
        phi[PD_N_FREQUENCIES + f] = pd_amplitudes[f] * PD_SIN(phase);
    }
//@if linear
    for (i = 0; i < PD_N_LINEAR; ++i) {
        phi[2 * PD_N_FREQUENCIES + i] = pd_linear_scale[i] * pd_cut(inputs[i], PD_LINEAR_REACH);
    }
//@end
//@if constant
    phi[PD_N_PHI - 1] = PD_CONSTANT;
//@end
//@end
//@if columns
    for (i = 0; i < PD_N_MAPPED; ++i) {
        phi[i] = inputs[i];
    }
//@if constant
    phi[PD_N_PHI - 1] = PD_CONSTANT;
//@end
//@end
//@if polynomial
    phi[0] = 1;
    for (i = 1; i < PD_N_PHI; ++i) {
        phi[i] = phi[pd_shorter[i]] * inputs[pd_factor[i]];
    }
//@end
}

/* Values of the samples' functions, middle[output] + parts[column] for column = output * PD_N_SAMPLES + sample, and the
   variance of every output that the basis functions lack. */
static inline void pd_functions(const pd_real *x, pd_real *middle, pd_real *parts, pd_real *missing)
{
    pd_real mapped[PD_N_MAPPED], phi[PD_N_PHI];
//@if rotated
    pd_real rotated[PD_N_DIRECTIONS], norm = 0;
    uint32_t k;
//@end
//@if cut_off
    pd_real beyond = 0;
//@end
    uint16_t i, column, output;
    uint32_t row = 0;
//@if sparse
    pd_reader reader = {UINT32_MAX, 0}; /* one before the first code */
    pd_advance(&reader);
//@end
    pd_map_inputs(x, mapped);
    for (i = 0; i < PD_N_MAPPED; ++i) {
        mapped[i] = pd_cut(mapped[i], PD_LARGEST_INPUT);
    }
    pd_basis(mapped, phi);
//@if cut_off
    for (i = 0; i < PD_N_CUT_OFF; ++i) {
        pd_real more = mapped[i] - pd_cut(mapped[i], PD_LINEAR_REACH);
        beyond += more * more;
    }
//@end
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        middle[output] = 0;
//@if cut_off
        missing[output] = pd_missing_scale[output] * beyond;
//@else
        missing[output] = 0;
//@end
    }
//@if rotated
    for (k = 0; k < PD_N_PHI; ++k) {
        norm += phi[k] * phi[k];
    }
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        pd_real outside = norm;
        for (i = pd_edges[output]; i < pd_edges[output + 1]; ++i) {
            rotated[i] = 0;
            for (k = 0; k < PD_N_PHI; ++k) {
                rotated[i] += phi[k] * pd_vectors[i * PD_N_PHI + k];
            }
            outside -= rotated[i] * rotated[i];
        }
        missing[output] += outside > 0 ? pd_outside_scale[output] * outside : 0;
    }
//@end
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        parts[column] = 0;
    }
    for (i = 0; i < PD_N_BASIS; ++i, row += PD_N_COLUMNS) {
//@if rotated
        pd_real feature = rotated[pd_order[i]];
//@else
        pd_real feature = phi[pd_order[i]];
//@end
//@if affine
        for (output = 0; output < PD_N_OUTPUTS; ++output) {
            middle[output] += feature * pd_centre[(uint32_t)i * PD_N_OUTPUTS + output];
        }
//@end
//@if sparse
        for (; reader.next < row + PD_N_COLUMNS; pd_advance(&reader)) {
            pd_real product = feature * pd_levels[pd_code(&reader)];
            column = (uint16_t)(reader.next - row);
//@else
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            pd_real product = feature * pd_levels[pd_code(row + column)];
//@end
//@if affine
            product *= pd_spread[(uint32_t)i * PD_N_OUTPUTS + column / PD_N_SAMPLES];
//@end
            parts[column] += product;
        }
    }
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        output = (uint16_t)(column / PD_N_SAMPLES);
        parts[column] *= pd_scale[output];
    }
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        middle[output] = pd_offset[output] + pd_scale[output] * middle[output];
    }
}
//@end

/* Mean and standard deviation of every output, noise included, for a row of PD_N_FEATURES_IN numbers. */
static inline void pd_predict(const pd_real *x, pd_real *mean, pd_real *std)
{
    pd_real middle[PD_N_OUTPUTS], parts[PD_N_COLUMNS], missing[PD_N_OUTPUTS];
    uint16_t output, s;
    pd_functions(x, middle, parts, missing);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        const pd_real *part = parts + (uint32_t)output * PD_N_SAMPLES;
        pd_real sum = 0, squares = 0;
        for (s = 0; s < PD_N_SAMPLES; ++s) {
            sum += part[s];
        }
        sum /= PD_N_SAMPLES;
        mean[output] = middle[output] + sum;
        for (s = 0; s < PD_N_SAMPLES; ++s) {
            squares += (part[s] - sum) * (part[s] - sum);
        }
        std[output] = PD_CALIBRATION * PD_SQRT(squares / PD_N_SAMPLES + missing[output] + pd_noise[output]);
    }
}

//@if classes
/* Probabilities of the PD_N_CLASSES classes, averaged over the samples. */
static inline void pd_predict_proba(const pd_real *x, pd_real *probability)
{
    pd_real middle[PD_N_OUTPUTS], parts[PD_N_COLUMNS], missing[PD_N_OUTPUTS];
    uint16_t output, s;
    pd_functions(x, middle, parts, missing);
    for (output = 0; output < PD_N_CLASSES; ++output) {
        probability[output] = 0;
    }
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        pd_real z[PD_N_OUTPUTS];
        for (output = 0; output < PD_N_OUTPUTS; ++output) {
            z[output] = middle[output] + parts[output * PD_N_SAMPLES + s];
        }
        pd_add_probabilities(z, probability);
    }
//@if two_classes
    probability[0] = 1 - probability[1];
//@end
}

//@end
/* Central intervals that contain the target with probability PD_LEVEL. */
static inline void pd_predict_interval(const pd_real *x, pd_real *lower, pd_real *upper)
{
    pd_real mean[PD_N_OUTPUTS], std[PD_N_OUTPUTS];
    uint16_t output;
    pd_predict(x, mean, std);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        lower[output] = mean[output] - PD_Z * std[output];
        upper[output] = mean[output] + PD_Z * std[output];
    }
}

/* Quantile p of the samples' functions, without noise, by interpolation between samples. */
static inline pd_real pd_quantile(const pd_real *parts, uint16_t output, pd_real p)
{
    pd_real ordered[PD_N_SAMPLES + 1], h = p * (PD_N_SAMPLES - 1);
    uint16_t s, at, i = (uint16_t)h;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        pd_real part = parts[(uint32_t)output * PD_N_SAMPLES + s];
        for (at = s; at > 0 && ordered[at - 1] > part; --at) {
            ordered[at] = ordered[at - 1];
        }
        ordered[at] = part;
    }
    ordered[PD_N_SAMPLES] = ordered[PD_N_SAMPLES - 1];
    return ordered[i] + (ordered[i + 1] - ordered[i]) * (h - (pd_real)i);
}

/* Central intervals of the samples' functions, without noise, with probability PD_LEVEL. */
static inline void pd_predict_function_interval(const pd_real *x, pd_real *lower, pd_real *upper)
{
    pd_real middle[PD_N_OUTPUTS], parts[PD_N_COLUMNS], missing[PD_N_OUTPUTS];
    uint16_t output;
    pd_functions(x, middle, parts, missing);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        lower[output] = middle[output] + pd_quantile(parts, output, PD_LOW);
        upper[output] = middle[output] + pd_quantile(parts, output, 1 - PD_LOW);
    }
}

/* --------------------------------------------------------------------------------------------------------- self-test

   Compares PD_N_TESTS rows with the results of Python. Returns 0 when all agree, else the row's number from 1 on. */
static inline int pd_self_test(void)
{
    pd_real found[4][PD_N_OUTPUTS]; /* mean, standard deviation, ends of the interval of the functions */
    uint16_t row, output, k;
    for (row = 0; row < PD_N_TESTS; ++row) {
        const pd_real *x = pd_test_x + (uint32_t)row * PD_N_FEATURES_IN;
        pd_predict(x, found[0], found[1]);
        pd_predict_function_interval(x, found[2], found[3]);
        for (output = 0; output < PD_N_OUTPUTS; ++output) {
            const pd_real *expected = pd_test_moments + ((uint32_t)row * PD_N_OUTPUTS + output) * 4u;
            const pd_real mean = expected[0] < 0 ? -expected[0] : expected[0];
            for (k = 0; k < 4; ++k) {
                pd_real error = found[k][output] - expected[k];
                /* relative to the standard deviation itself: beside a large mean its error would go unnoticed */
                pd_real size = expected[1] + (k == 1 ? PD_TOLERANCE * mean : mean);
                /* negated so that NaN fails */
                if (!(error <= PD_TOLERANCE * size && -error <= PD_TOLERANCE * size)) {
                    return (int)row + 1;
                }
            }
        }
    }
    return 0;
}
