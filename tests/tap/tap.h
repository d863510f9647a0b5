/* tap.h - the test anything protocol, for programs run under prove. */
#ifndef EGPU_TAP_H
#define EGPU_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static bool tap_ok(bool pass, const char *file,
	int line, const char *fmt, ...)
{
	va_list ap;
	printf("%sok %d - ", pass ? "" : "not ", ++tap_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	if (!pass) {
		tap_failed++;
		printf("#   failed at %s:%d\n", file, line);
	}
	fflush(stdout);
	return pass;
}

/* ok(condition, "what is shown", ...) */
#define ok(cond, ...) tap_ok((cond), __FILE__, __LINE__, __VA_ARGS__)

/* Both values are printed when they differ. */
#define is_int(got, want, ...)                                                           \
	do {                                                                             \
		long long tap_got = (long long)(got), tap_want = (long long)(want);      \
		if (!tap_ok(tap_got == tap_want, __FILE__, __LINE__, __VA_ARGS__))       \
			printf("#   got %lld, want %lld\n", tap_got, tap_want);          \
	} while (0)

#define is_str(got, want, ...)                                                           \
	do {                                                                             \
		const char *tap_got = (got), *tap_want = (want);                         \
		if (!tap_ok(tap_got && !strcmp(tap_got, tap_want), __FILE__, __LINE__,   \
			    __VA_ARGS__))                                                \
			printf("#   got  \"%s\"\n#   want \"%s\"\n", tap_got ? tap_got : "(null)", \
				tap_want);                                               \
	} while (0)

/* A line of the plan's skipped part: `ok N # skip why`. */
#define tap_skip(why) printf("ok %d # skip %s\n", ++tap_count, why)

/* The last call of main: prints the plan. */
static inline int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? 1 : 0;
}

#endif
