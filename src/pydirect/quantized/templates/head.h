#include <stdint.h>
//@if counts
//@else
#include <float.h>
//@end

#ifdef __cplusplus
extern "C" {
#endif

/* Tables stay in flash; on AVR, where flash is a separate address space, they are read by special instructions. */
#if defined(__AVR__)
#include <avr/pgmspace.h>
#define PD_TABLE PROGMEM
#define PD_READ_8U(address) pgm_read_byte(address)
#define PD_READ_8(address) ((int8_t)pgm_read_byte(address))
#define PD_READ_16U(address) pgm_read_word(address)
#define PD_READ_16(address) ((int16_t)pgm_read_word(address))
#define PD_READ_32U(address) pgm_read_dword(address)
#define PD_READ_32(address) ((int32_t)pgm_read_dword(address))
//@if counts
//@else
#define PD_READ_FLOAT(address) pgm_read_float(address)
//@end
#else
#define PD_TABLE
#define PD_READ_8U(address) (*(address))
#define PD_READ_8(address) (*(address))
#define PD_READ_16U(address) (*(address))
#define PD_READ_16(address) (*(address))
#define PD_READ_32U(address) (*(address))
#define PD_READ_32(address) (*(address))
//@if counts
//@else
#define PD_READ_FLOAT(address) (*(address))
//@end
#endif

