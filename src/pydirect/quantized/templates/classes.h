/* Add to the probabilities of the classes those that one sample's logits give, divided by PD_N_SAMPLES.

   Two classes: sigmoid(z). Several: sigmoid(z_k) / sum of all of them, each divided by e^m, m = min(largest z, 0), lest
   they vanish. */
static inline void pd_add_probabilities(const pd_real *z, pd_real *probability)
{
//@if two_classes
    probability[1] += 1 / (1 + PD_EXP(-z[0])) / PD_N_SAMPLES;
//@else
    pd_real p[PD_N_OUTPUTS], largest = z[0], sum = 0;
    uint16_t k;
    for (k = 1; k < PD_N_OUTPUTS; ++k) {
        largest = z[k] > largest ? z[k] : largest;
    }
    largest = largest < 0 ? largest : 0;
    for (k = 0; k < PD_N_OUTPUTS; ++k) {
        pd_real size = z[k] < 0 ? -z[k] : z[k];
        p[k] = PD_EXP((z[k] < 0 ? z[k] : 0) - largest) / (1 + PD_EXP(-size));
        sum += p[k];
    }
    for (k = 0; k < PD_N_OUTPUTS; ++k) {
        probability[k] += p[k] / sum / PD_N_SAMPLES;
    }
//@end
}

