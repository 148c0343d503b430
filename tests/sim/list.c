/* The option -l: prints as JSON what a VM file may ask of this program: policies with their presets
 * and parameters, and the images that have a model. So a page or a script can offer all of them,
 * and needs no list of its own that could go out of date. */
#include <stdio.h>
#include "sim.h"

/* Prints the words that a parameter may have, as a list of JSON. */
static void list_words(const char *const *words) {
    const char *comma = "";

    printf(", \"words\": [");
    for (; *words; words++) {
        printf("%s\"%s\"", comma, *words);
        comma = ", ";
    }
    printf("]");
}

/* Prints a parameter as an object of JSON. */
static void list_param(const struct param *e) {
    const char *scope = "vm";

    if (e->scope == PARAM_POOL) scope = "pool";
    printf("\n   {\"name\": \"%s\", \"scope\": \"%s\", \"unit\": \"%s\", \"min\": %u, \"max\": %u",
           e->name, scope, e->unit, e->min, e->max);
    printf(", \"help\": ");
    json_string(e->help);
    if (e->names) list_words(e->names);
    printf("}");
}

/* Prints a policy with its presets and parameters as an object of JSON. */
static void list_policy(const struct sched_policy *policy) {
    const char *comma = "";

    printf("\n {\"policy\": \"%s\", \"presets\": [", policy->name);
    for (const struct sched_preset *s = policy->presets; s && s->name; s++) {
        printf("%s\"%s\"", comma, s->name);
        comma = ", ";
    }
    printf("],\n  \"params\": [");
    comma = "";
    for (const struct param *e = policy->params; e && e->name; e++) {
        printf("%s", comma);
        list_param(e);
        comma = ",";
    }
    printf("]}");
}

/* Prints all policies and images as one object of JSON. */
void list_choices(void) {
    const char *comma = "", *image;

    printf("{\"policies\": [");
    for (u32 i = 0; sched_policies[i]; i++) {
        printf("%s", comma);
        list_policy(sched_policies[i]);
        comma = ",";
    }
    comma = "";
    printf("],\n \"images\": [");
    for (u32 i = 0; (image = scenario_image(i)); i++) {
        printf("%s\"%s\"", comma, image);
        comma = ", ";
    }
    printf("]}\n");
}
