/* fatbin.h - what code a CUDA image carries, and its PTX text.
 *
 * An image is what a program hands cuModuleLoadData, or a file on disk: a fatbin wrapper (pointers,
 *in memory only), a fatbin region, a cubin (ELF of machine EM_CUDA), a host ELF executable or
 *shared object with .nv_fatbin sections, or PTX text. All of them become one list of entries.
 *Nothing is decompressed before it is asked for.
 *
 * Container (little-endian; seen with CUDA 11 to 13):
 *
 *	wrapper  u32 0x466243b1, u32 version 1 or 2, ptr region, ptr aux (version 2: NULL-ended
 *array of regions) region   u32 0xba55ed50, u16 version 1, u16 header bytes 16, u64 bytes of
 *entries; regions repeat, 8-aligned entry    00 u16 kind   02 u16 version   04 u32 header bytes 08
 *u64 payload bytes (padded to 8) 10 u32 compressed bytes (0: raw)   14 u32 offset of options record
 *{u32 offset, u32 length} 18 u16 minor   1a u16 major   1c u32 SM   20 u32 name offset   24 u32
 *name length 28 u64 flags   30 u64 0   38 u64 uncompressed bytes
 *
 * Outside bytes are never trusted: a bad offset, size or stream is -EINVAL with a message, never a
 *crash, and no allocation exceeds FATBIN_MAX_PLAIN.
 *
 * Ownership: a struct fatbin points into the caller's bytes, which must outlive it; strings live in
 *its arena.
 */
#ifndef EGPU_CUDA_FATBIN_H
#define EGPU_CUDA_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FATBIN_REGION_MAGIC 0xba55ed50u

enum {
	FATBIN_MAX_PLAIN = 1 << 30, /* bytes of one decompressed entry */
	FATBIN_MAX_ENTRIES = 65536, /* of one image */
};

enum fatbin_input {
	FATBIN_INPUT_PTX,     /* PTX text */
	FATBIN_INPUT_REGION,  /* one or more regions */
	FATBIN_INPUT_WRAPPER, /* in memory, its pointers followed */
	FATBIN_INPUT_CUBIN,   /* ELF for the device */
	FATBIN_INPUT_HOST,    /* ELF for the host that embeds regions */
};

enum fatbin_kind {
	FATBIN_KIND_PTX = 1,
	FATBIN_KIND_ELF = 2, /* cubin */
	FATBIN_KIND_LTO = 8, /* LTO-IR; other numbers are kept as they are */
};

/* Flags of an entry (offset 28). */
#define FATBIN_FLAG_LZ4 0x2000u
#define FATBIN_FLAG_ZSTD 0x8000u
#define FATBIN_FLAG_SCRAMBLED 0x10000u
#define FATBIN_FLAG_ARCH 0x100000u   /* sm_90a */
#define FATBIN_FLAG_FAMILY 0x200000u /* sm_100f */

enum fatbin_packing { FATBIN_RAW, FATBIN_LZ4, FATBIN_ZSTD };

struct fatbin_entry {
	uint32_t kind;   /* enum fatbin_kind */
	uint32_t region; /* which region it came from, from 0: a translation unit each in a host ELF
			  */
	uint32_t sm;     /* 90; 0: not known */
	char suffix;     /* 'a', 'f' or 0 */
	uint16_t major, minor; /* of the PTX ISA or the ELF; 0.0 in a bare cubin or PTX text */
	uint64_t flags;
	enum fatbin_packing packing;
	const uint8_t *stored; /* payload as it lies in the image */
	uint64_t stored_bytes;
	uint64_t plain_bytes;   /* declared; equals stored_bytes when RAW */
	const char *options;    /* "-maxrregcount=32"; "" when there are none */
	const char *name;       /* identifier, often the source file; "" when there is none */
	const char *unreadable; /* NULL, or why the payload cannot be had ("scrambled") */
	bool relocatable; /* from __nv_relfatbin: separate compilation, before the device link */
};

struct fatbin {
	struct arena *arena;
	enum fatbin_input input;
	struct fatbin_entry *entries;
	uint32_t n_entries;
	uint32_t n_regions;
	bool foreign; /* memory of unknown extent: reads are probed first */
};

/* Lists the entries of size bytes (a file's contents, or an image whose size is known). Wrappers
 * are refused here, since their pointers mean nothing outside their process. 0, -EINVAL, -ENOMEM,
 * with d saying what and where. */
int fatbin_open(const void *data, size_t size, struct fatbin **out, struct diag *d);
/* The same for the address that a program gave cuModuleLoadData or cuLibraryLoadData: the extent is
 * found from the contents, and unmapped memory is -EINVAL instead of a fault. The image must stay
 * as it is while *out is used. */
int fatbin_open_image(const void *image, struct fatbin **out, struct diag *d);
void fatbin_close(struct fatbin *f); /* NULL is allowed */

/* The entry's plain bytes in a malloc'd block that ends with a NUL beyond *size; the caller frees
 * it. For PTX, trailing NULs are not counted. -EINVAL (broken stream, wrong size), -EOPNOTSUPP
 * (unreadable; d says why), -ENOMEM. */
int fatbin_read(const struct fatbin *f, const struct fatbin_entry *e, char **data, size_t *size,
	struct diag *d);
/* The same from a copy of the entry's stored bytes that the caller keeps. */
int fatbin_unpack(const struct fatbin_entry *e, const void *stored, char **data, size_t *size,
	struct diag *d);

/* Names of a cubin's sections, each with its NUL, in a malloc'd block: ".text.KERNEL" among them, and possibly some
 * that it does not have. Unpacks only its beginning, where NVIDIA's assembler writes them. -ENOENT: they are not there. */
int fatbin_section_names(const struct fatbin *f, const struct fatbin_entry *e, char **names, size_t *bytes);

/* PTX that a driver could compile for a device of this compute capability (90 for 9.0): same SM for
 * 'a', same major and not newer for 'f', not newer otherwise. One per region, the one a driver
 * would take: exact 'a', then family, then the newest. The number written to picks. */
uint32_t fatbin_choose_ptx(
	const struct fatbin *f, uint32_t cc, const struct fatbin_entry **picks, uint32_t max);
/* Whether an entry's target fits a device. */
bool fatbin_fits(const struct fatbin_entry *e, uint32_t cc);

/* What a device would get from one region. */
struct fatbin_unit {
	uint32_t region;
	const struct fatbin_entry *ptx; /* the best PTX, NULL: none fits */
	const struct fatbin_entry
		*elf;    /* the cubin the driver would load as it is, NULL: none fits */
	bool ptx_in_elf; /* ptx NULL, but elf carries .nv_debug_ptx_txt: fatbin_unit_text reads it
			  */
	const char *source; /* "fatbin sm_90 PTX", "PTX text", "cubin .nv_debug_ptx_txt", "none" */
	const char *reason; /* why there is no PTX; NULL when there is */
};
/* One unit a region, in the arena of f. cc 0: the newest of everything. 0, -ENOMEM. */
int fatbin_units(struct fatbin *f, uint32_t cc, struct fatbin_unit **units, uint32_t *n);
/* The PTX text of a unit, malloc'd as by fatbin_read. -ENOENT when it has none. */
int fatbin_unit_text(const struct fatbin *f, const struct fatbin_unit *u, char **text, size_t *size,
	struct diag *d);
/* "sm_90a", "compute_80" of an entry, for messages; kind decides the word. */
const char *fatbin_target_name(const struct fatbin_entry *e, char out[24]);

/* -- cubins (cubin.c): plain bytes of an ELF for the device
 * ----------------------------------------------- */

/* SM of the cubin, 0 when it cannot be told. */
uint32_t cubin_sm(const void *elf, size_t size);
/* Machine code of one function of a linked cubin and of those that it calls, as it is where it lies at `address`, a multiple of 128.
 * code NULL: only *out. -ENOENT: no such function; -ENOTSUP: it needs more than code (data of its own, relocations of a kind that is not
 * known); -ENOSPC: more than `room` bytes; -EINVAL: damaged. */
struct cubin_code {
	size_t bytes;
	uint32_t regs;	      /* of a thread */
	uint32_t frame_bytes; /* of stack, at most */
};
int cubin_code(const void *elf, size_t size, const char *name, uint64_t address, void *code, size_t room, struct cubin_code *out);
/* Registers of a thread of this kernel; 0 when it has none of this name, or does not say. */
uint32_t cubin_kernel_regs(const void *elf, size_t size, const char *name);
/* A kernel as it can be compared with another, whatever the two are called. -ENOENT: no such kernel; -EINVAL: damaged; -ENOMEM. */
struct cubin_kernel {
	uint32_t sm, regs;
	uint64_t shared_bytes;	 /* static; on sm_90 and later with what is the driver's */
	struct buf code, banks; /* machine code with what it refers to; constants of the whole module */
};
void cubin_kernel_free(struct cubin_kernel *k);
/* Whether they are the same machine code. */
bool cubin_kernel_same(const struct cubin_kernel *a, const struct cubin_kernel *b);
int cubin_kernel(const void *elf, size_t size, const char *name, struct cubin_kernel *out);
/* Names of its kernels (mangled), in the arena. 0, -EINVAL, -ENOMEM. */
int cubin_kernels(struct arena *a, const void *elf, size_t size, const char ***names, uint32_t *n,
	struct diag *d);
/* Bytes of each kernel's constant bank 0, which ends with its parameters. Calls fn with names that point into
 * the ELF. */
void cubin_banks(const void *elf, size_t size, void (*fn)(const char *kernel, uint64_t bytes, void *arg), void *arg);
bool cubin_has_ptx(const void *elf, size_t size);
/* PTX kept by -lineinfo or -G in .nv_debug_ptx_txt: a malloc'd text. -ENOENT when there is none,
 * -EINVAL. */
int cubin_ptx(const void *elf, size_t size, char **text, size_t *text_bytes, struct diag *d);
/* Bytes of the ELF image by its own headers (for images of unknown extent), bounded by size; 0 when
 * it is no 64-bit LE ELF. */
uint64_t elf_extent(const void *elf, size_t size);
bool elf_is_cubin(const void *elf, size_t size);
/* Section `index` of a 64-bit little-endian ELF; name and contents point into it. 1, 0 past the
 * last section, -EINVAL. */
int elf_section(const void *elf, size_t size, uint32_t index, const char **name,
	const uint8_t **data, uint64_t *bytes);

/* -- PTX text
 * --------------------------------------------------------------------------------------------- */

/* Whether the text starts like PTX: blanks and comments, then ".version". */
bool fatbin_is_ptx(const char *text, size_t size);
/* .version and .target of a PTX text without parsing the rest; fields that are not found stay 0. */
void fatbin_ptx_target(const char *text, size_t size, uint16_t *major, uint16_t *minor,
	uint32_t *sm, char *suffix);

#endif
