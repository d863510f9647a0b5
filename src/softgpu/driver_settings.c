/* driver_settings.c - EGPU_SOFTGPU: "sm_90,sms=8,workers=4,memory=4G,check,strict,seed=7,behind=50", parsed
 * strictly. */
#include "softgpu/driver.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USAGE                                                                                      \
	"expected sm_75..sm_90, sms=N, workers=N, memory=N[K|M|G], devices=N, check, strict, seed=N and behind=MS, separated by commas"

static bool number(const char *s, uint64_t min, uint64_t max, bool size, uint64_t *out)
{
	if (!isdigit((unsigned char)*s))
		return false;
	char *end;
	errno = 0;
	unsigned long long v = strtoull(s, &end, 10);
	if (errno)
		return false;
	int shift = 0;
	if (size && *end && !end[1]) {
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : -1;
		if (shift < 0 || v > UINT64_MAX >> shift)
			return false;
		end++;
	}
	*out = v << shift;
	return !*end && *out >= min && *out <= max;
}

/* The compute capabilities that exist between 7.5 and 9.0. */
static bool known_sm(uint64_t sm)
{
	static const uint8_t known[] = { 75, 80, 86, 87, 89, 90 };
	for (size_t i = 0; i < sizeof(known); i++)
		if (known[i] == sm)
			return true;
	return false;
}

static bool setting(const char *word, struct sg_config *c)
{
	uint64_t v;
	if (!strncmp(word, "sm_", 3)) {
		size_t n = strlen(word);
		char digits[8];
		if (n < 4 || n >= sizeof(digits) + 3)
			return false;
		memcpy(digits, word + 3, n - 2);
		if (digits[n - 4] == 'a') /* sm_90a runs what sm_90 runs */
			digits[n - 4] = 0;
		if (!number(digits, 75, 90, false, &v) || !known_sm(v))
			return false;
		c->sm = v;
		return true;
	}
	if (!strncmp(word, "sms=", 4) && number(word + 4, 1, 1024, false, &v))
		return c->n_sms = v, true;
	if (!strncmp(word, "workers=", 8) && number(word + 8, 1, 1024, false, &v))
		return c->n_workers = v, true;
	if (!strncmp(word, "memory=", 7) && number(word + 7, 1 << 20, 1ull << 40, true, &v))
		return c->memory_bytes = v, true;
	if (!strncmp(word, "devices=", 8) && number(word + 8, 1, DRV_MAX_DEVICES, false, &v))
		return drv.n_devices = (int)v, true;
	if (!strcmp(word, "check"))
		return c->check = true, true;
	if (!strcmp(word, "strict"))
		return drv.strict = true, true;
	if (!strncmp(word, "seed=", 5) && number(word + 5, 0, UINT32_MAX, false, &v))
		return c->shuffle_seed = v, true;
	if (!strncmp(word, "behind=", 7) && number(word + 7, 0, 3600000, false, &v))
		return c->behind_ms = v, true;
	return false;
}

/* Half the machine's memory, between 256 MiB and 16 GiB. */
static uint64_t default_memory(void)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	if (bytes < 256ull << 20)
		bytes = 256ull << 20;
	return bytes > 16ull << 30 ? 16ull << 30 : bytes & ~0xfffffull;
}

int drv_settings(const char *text, struct sg_config *config, struct diag *d)
{
	*config = (struct sg_config){ .sm = 90, .n_sms = 8, .memory_bytes = default_memory() };
	drv.n_devices = 1;
	drv.strict = false;
	if (!text)
		return 0;
	while (*text) {
		size_t n = strcspn(text, ",");
		char word[64];
		if (n >= sizeof(word))
			return diag_set(
				d, EINVAL, "EGPU_SOFTGPU: '%.60s...' is too long; " USAGE, text);
		memcpy(word, text, n);
		word[n] = 0;
		if (!setting(word, config))
			return diag_set(
				d, EINVAL, "EGPU_SOFTGPU: '%s' is not understood; " USAGE, word);
		text += n;
		if (*text == ',' && !*++text)
			return diag_set(
				d, EINVAL, "EGPU_SOFTGPU: nothing follows the last comma; " USAGE);
	}
	return 0;
}
