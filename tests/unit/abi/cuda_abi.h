/* cuda_abi.h - what cuda_abi_facts.c gives and cuda_abi.c compares. */
struct fact {
	const char *name; /* NULL ends the list */
	long long value;
};
extern const struct fact facts_ours[], facts_theirs[];
