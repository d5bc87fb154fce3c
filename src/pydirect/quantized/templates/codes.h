//@if sparse
/* Position in the stored codes. */
typedef struct {
    uint32_t next; /* index of the next stored code, counted over all basis functions and columns */
    uint32_t byte;
} pd_reader;

/* Advance to the next stored code. */
static inline void pd_advance(pd_reader *reader)
{
//@if stored
    if (reader->byte < PD_CODE_BYTES) {
//@if bytes
        reader->next += (uint32_t)PD_READ_8U(pd_codes + reader->byte) + 1u;
        reader->byte += 2;
//@else
        reader->next += (uint32_t)(PD_READ_8U(pd_codes + reader->byte) >> 4) + 1u;
        reader->byte += 1;
//@end
        return;
    }
//@end
    reader->next = UINT32_MAX;
}

static inline uint8_t pd_code(const pd_reader *reader)
{
//@if bytes
    return PD_READ_8U(pd_codes + reader->byte - 1);
//@else
    return PD_READ_8U(pd_codes + reader->byte - 1) & 15u;
//@end
}

//@else
/* Code number i; together the codes are one little-endian number, the first one in its lowest bits. */
static inline uint8_t pd_code(uint32_t i)
{
//@if bits2
    return (uint8_t)(PD_READ_8U(pd_codes + (i >> 2)) >> (2u * (i & 3u))) & 3u;
//@end
//@if bits3
    uint32_t bit = 3u * i;
    uint16_t both = PD_READ_8U(pd_codes + (bit >> 3));
    both = (uint16_t)(both | (uint16_t)PD_READ_8U(pd_codes + (bit >> 3) + 1) << 8);
    return (uint8_t)(both >> (bit & 7u)) & 7u;
//@end
//@if bits4
    return (uint8_t)(PD_READ_8U(pd_codes + (i >> 1)) >> (4u * (i & 1u))) & 15u;
//@end
//@if bytes
    return PD_READ_8U(pd_codes + i);
//@end
}

//@end
