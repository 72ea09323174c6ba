/* dashboard.h: the queries of config/grafana/attnd.json, as Grafana would ask them. */
#ifndef TESTS_METRICS_DASHBOARD_H
#define TESTS_METRICS_DASHBOARD_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_QUERIES 256

struct query {
    char *text;        /* with its variables replaced */
    const char *panel; /* the title, or the name of a variable */
    bool has_data;
};

struct dashboard {
    struct query queries[MAX_QUERIES];
    size_t count, panels, rows, variables;
};

/* Reads the dashboard.  Fails the test where its form is wrong: ids that repeat, panels that
 * overlap or stand outside of the 24 columns, another data source than the variable's, a panel
 * without a query, a variable of Grafana that is not known here. */
void dashboard_read(struct dashboard *dashboard, const char *path);
void dashboard_free(struct dashboard *dashboard);

#endif
