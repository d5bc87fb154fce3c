/* ------------------------------------------------------------------------------------------------- integer arithmetic

   Nothing below overflows, whatever the inputs: the exporter has proved it from the tables. Unsigned arithmetic wraps
   around intentionally; no negative number is shifted; no int is assumed to be wider than 16 bits. */

/* A quantised input. */
typedef int16_t pd_input;

/* v / 2^shift rounded to the nearest integer, halves away from zero. */
static inline int32_t pd_round_shift(int32_t v, uint8_t shift)
{
    uint32_t half = ((uint32_t)1 << shift) >> 1;
    if (v < 0) {
        return -(int32_t)((((uint32_t)0 - (uint32_t)v) + half) >> shift);
    }
    return (int32_t)(((uint32_t)v + half) >> shift);
}

/* The number whose two's complement is u. */
static inline int32_t pd_signed(uint32_t u)
{
    return u <= (uint32_t)INT32_MAX ? (int32_t)u : -(int32_t)(~u) - 1;
}

static inline int32_t pd_clip(int32_t v, int32_t limit)
{
    return v > limit ? limit : v < -limit ? -limit : v;
}

/* Add the product of a basis function and the multiplier of a code. */
static inline uint32_t pd_add_product(uint32_t accumulator, int32_t feature, uint8_t code)
{
//@if shifts
    /* 0x80: zero; 0x40: negative; the remaining bits are the exponent of two. */
    uint8_t power = PD_READ_8U(pd_powers + code);
    uint32_t product = (uint32_t)feature << (power & 31u);
    if (power & 0x80u) {
        return accumulator;
    }
    return (power & 0x40u) ? accumulator - product : accumulator + product;
//@else
//@if even
    return accumulator + (uint32_t)(feature * (PD_FIRST_LEVEL + PD_LEVEL_STEP * (int32_t)code));
//@else
    return accumulator + (uint32_t)(feature * (int32_t)PD_READ_MULTIPLIER(pd_multipliers + code));
//@end
//@end
}

