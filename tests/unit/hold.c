/* hold: when a sweep waits for company. */
#include "jobs/hold.h"
#include "tests/lib/test.h"

/* Cores that sweeps keep busy lose nothing by a wait; full places, and jobs that hang, end it. */
TEST(busy_cores_wait)
{
    struct hold h;
    hold_begin(&h, 2, 0.5, 100);
    CHECK(hold_sweep(&h, 0, 8, 1000)); /* nothing to sweep */
    CHECK(hold_sweep(&h, 1, 8, 101));
    hold_came(&h, 150);
    CHECK(hold_sweep(&h, 7, 8, 200));
    CHECK(!hold_sweep(&h, 8, 8, 200));
    CHECK(!hold_sweep(&h, 7, 8, 211));
    hold_came(&h, 211);
    CHECK(hold_sweep(&h, 7, 8, 212));
}

/* Beside sweeps that wait for the disk for 8 of 10 seconds, a wait is worth 10 s * 3 / 4 / 0.8. */
TEST(idle_cores_wait_for_what_it_is_worth)
{
    struct hold h;
    hold_begin(&h, 10, 8, 100);
    CHECK(hold_sweep(&h, 2, 8, 100));
    CHECK(hold_sweep(&h, 2, 8, 109.3));
    CHECK(!hold_sweep(&h, 2, 8, 109.5));
    CHECK(!hold_sweep(&h, 4, 8, 109.3));
    hold_swept(&h, 10, 8, 120);
    CHECK(hold_sweep(&h, 2, 8, 121)); /* a new wait */
    CHECK(hold_sweep(&h, 2, 8, 130.2));
    CHECK(!hold_sweep(&h, 2, 8, 130.5));
}

/* What sweeps take and wait is learned, soon after others than expected. */
TEST(sweeps_are_measured)
{
    struct hold h;
    hold_begin(&h, 0, 0, 0);
    CHECK(hold_sweep(&h, 1, 8, 1)); /* nothing is known */
    hold_swept(&h, 4, 3, 5);
    CHECK(hold_sweep(&h, 4, 8, 5));
    CHECK(hold_sweep(&h, 4, 8, 7.6));
    CHECK(!hold_sweep(&h, 4, 8, 7.7));
    double waited = 3;
    for (int i = 0; i < 20; i++) hold_swept(&h, 4, waited += 1, 10 + i);
    CHECK(hold_sweep(&h, 4, 8, 30));
    CHECK(hold_sweep(&h, 4, 8, 60));
}

TEST_MAIN
