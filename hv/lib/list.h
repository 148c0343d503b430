/* A circular doubly linked list. The links are members of the structures that are in the list. */
#ifndef HV_LIB_LIST_H
#define HV_LIB_LIST_H

#include <takt/types.h>

struct list {
    struct list *next, *prev;
};

#define list_entry(ptr, type, member)  container_of(ptr, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_for_each(pos, head, type, member)                                                     \
    for (type *pos = list_entry((head)->next, type, member); &pos->member != (head);               \
         pos = list_entry(pos->member.next, type, member))
/* Goes through a list as list_for_each does, but the body may remove `pos` from the list. */
#define list_for_each_safe(pos, head, type, member)                                                \
    for (type *pos = list_entry((head)->next, type, member),                                       \
              *pos##_next = list_entry(pos->member.next, type, member);                            \
         &pos->member != (head);                                                                   \
         pos = pos##_next, pos##_next = list_entry(pos->member.next, type, member))

static inline void list_init(struct list *l) { l->next = l->prev = l; }

static inline bool list_empty(const struct list *l) { return l->next == l; }

/* Puts `l` between two entries that follow each other. */
static inline void list_insert_between(struct list *l, struct list *prev, struct list *next) {
    l->prev = prev;
    l->next = next;
    prev->next = l;
    next->prev = l;
}

/* Puts `l` before all entries of a list. */
static inline void list_add_head(struct list *head, struct list *l) {
    list_insert_between(l, head, head->next);
}

/* Puts `l` behind all entries of a list, or, if `head` is an entry, right before that entry. */
static inline void list_add_tail(struct list *head, struct list *l) {
    list_insert_between(l, head->prev, head);
}

/* Moves all entries of `from` to the end of `to`. */
static inline void list_join(struct list *to, struct list *from) {
    if (list_empty(from)) return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

/* Removes `l` from its list and makes it an empty list, so that removing it twice does no harm. */
static inline void list_del(struct list *l) {
    l->prev->next = l->next;
    l->next->prev = l->prev;
    list_init(l);
}

#endif
