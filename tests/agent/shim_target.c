/* shim_target.c - a name for the shim to need; the session links it to softgpu. */
int egpu_shim_target(void);

int egpu_shim_target(void)
{
	return 0;
}
