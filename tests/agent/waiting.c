/* A library whose loading takes as long as a function of the program does: EGPU_TEST_CALL is its address. */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void call(void)
{
	const char *at = getenv("EGPU_TEST_CALL");
	if (at)
		((void (*)(void))(uintptr_t)strtoull(at, NULL, 16))();
}
