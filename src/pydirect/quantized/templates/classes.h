/* Add the class probabilities of one sample's logits, divided by PD_N_SAMPLES.

   Two classes: 1 / (1 + e^-z). More: e^z_k divided by the sum over all classes. */
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
    for (k = 0; k < PD_N_OUTPUTS; ++k) {
        p[k] = PD_EXP(z[k] - largest);
        sum += p[k];
    }
    for (k = 0; k < PD_N_OUTPUTS; ++k) {
        probability[k] += p[k] / sum / PD_N_SAMPLES;
    }
//@end
}

