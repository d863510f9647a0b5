/* glibc.h - which glibc symbol versions the agent binds to: the only thing here that differs
 * between architectures.
 *
 * The agent enters programs that are older than the machine it was built on. Functions that moved
 * into libc.so.6 with glibc 2.34, or whose C23 form is chosen by newer headers, are bound to the
 * version they had from the start. Those that ld finds in objects of others (zstd, our own
 * libraries) come here through --wrap. tests/agent/glibc.t reads the result.
 */
#ifndef EGPU_AGENT_GLIBC_H
#define EGPU_AGENT_GLIBC_H

#if defined(__x86_64__)
#define GLIBC_FIRST "GLIBC_2.2.5"

#elif defined(__aarch64__)
#define GLIBC_FIRST "GLIBC_2.17"

#else
#error "add the first glibc version of this architecture"
#endif

/* declares old_NAME, which is the first version of NAME */
#define OLD(type, name, ...)                                                                       \
	__asm__(".symver old_" #name "," #name "@" GLIBC_FIRST);                                   \
	type old_##name(__VA_ARGS__)

#endif
