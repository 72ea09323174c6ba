/* suite_run.c: running one suite. */
#include "suite_run.h"

bool suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    bool passed = srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passed;
}
