/* stub.c - stands for the driver where the session's alias is missing, so that the target starts
 * all the same. */
int egpu_driver_stub(void);

int egpu_driver_stub(void)
{
	return 0;
}
