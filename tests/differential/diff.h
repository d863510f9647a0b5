/* diff.h - one instruction, many inputs, on any CUDA driver: what the parts of the differential
 * test share.
 *
 * cases.c   which instructions, with the classes of their operands
 * gen.c     inputs (the same everywhere: from the case's name) and PTX text
 * bounds.c  how far a result may be from the recorded one, with the section of the PTX ISA that
 * says so diff.c    the program: runs the cases on a driver, records or compares
 *
 * A case is run by DIFF_N threads, each with inputs of its own. Its signature is
 * "results:operands", one letter each; the letter gives the register width and the distribution of
 * inputs: h r d    integers of 16, 32, 64 bits      s  small numbers (shifts, positions) f F H B
 * floats: f32, f64, f16, bf16      X Y  pairs f16x2, bf16x2      p  predicate and for operands only
 *   n N      integers that are not zero (32, 64 bits), z of 16        E  16 random bits (fp8 pairs)
 *   i I      f32, f64 near the ranges of integer types                u  f32, mostly positive
 *   e        f32 of moderate size                                     c  one of four values
 *   g G j J  small whole numbers as f16x2, bf16x2, f32, f64
 *   k K w W  values from [-1, 1] as f16x2, bf16x2, f32, f64           l  0..31
 * In the body results are %o0, %o1, ..., operands %a0, %a1, ...; %s is the address of 64 bytes of
 * zeroed global memory of the thread, %x its number in the grid.
 */
#ifndef EGPU_TEST_DIFF_H
#define EGPU_TEST_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIFF_N 1024
#define DIFF_BLOCK 128
#define DIFF_SLOTS 16 /* most results or operands of a case */

struct diff_case {
	const char *family;
	char *name, *body;
	const char *results, *operands; /* point into sig */
	char *sig;
	const char *bound; /* NULL: bit for bit */
};

struct diff_list {
	struct diff_case *cases;
	uint32_t n, cap;
};

/* cases.c */
void diff_cases(struct diff_list *list);
void diff_cases_free(struct diff_list *list);

/* gen.c */
/* Bytes of a register of that class. */
uint32_t diff_bytes(char cls);
/* Operand k of every thread: DIFF_N values. */
void diff_inputs(const struct diff_case *c, uint32_t k, uint64_t *out);
uint64_t diff_hash(const void *data, size_t bytes, uint64_t seed);
/* PTX text of the cases [from, to): kernels k0, k1, ... Freed by the caller. */
char *diff_ptx(const struct diff_list *list, uint32_t from, uint32_t to);

/* bounds.c */
bool diff_close(
	const struct diff_case *c, uint32_t result, uint64_t got, uint64_t want, uint64_t operand);
/* Whether the name is in the table. */
bool diff_bound_known(const char *name);

#endif
