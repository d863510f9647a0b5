/* Our driver-API header against NVIDIA's: every enumerator, and the sizes and offsets of every
 * structure. */
#include "tap.h"

#include "cuda_abi.h"

int main(void)
{
	int different = 0, n = 0;
	for (; facts_ours[n].name; n++)
		if (facts_ours[n].value != facts_theirs[n].value && ++different)
			printf("# %s is %lld, NVIDIA's is %lld\n", facts_ours[n].name,
				facts_ours[n].value, facts_theirs[n].value);
	ok(n > 600, "%d facts", n);
	is_int(different, 0, "all the same");
	return tap_done();
}
