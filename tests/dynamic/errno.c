/* errno.c - a library whose loading changes errno, as an open(2) that fails on the way does. */
#include <errno.h>

__attribute__((constructor)) static void arrive(void)
{
	errno = ENOTTY;
}
