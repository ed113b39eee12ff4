"""First names of the people in worded questions."""

from __future__ import annotations

GIRLS = (
    "Mia", "Lily", "Anna", "Sue", "Zoe", "Ella", "Ruby", "Nora", "Ivy", "Lucy", "Rosa", "Emma", "Jane", "Kate",
    "Molly", "Daisy", "Amy", "Eva", "Tina", "Sara", "Maya", "Nina", "Clara", "Holly", "Penny", "Grace", "Lola",
    "Hana", "Leila", "Freya", "Alma", "Greta", "June", "Olive", "Tara", "Wendy",
)  # fmt: skip
BOYS = (
    "Tom", "Ben", "Sam", "Max", "Leo", "Tim", "Jack", "Finn", "Noah", "Otto", "Luke", "Adam", "Dan", "Omar", "Hugo",
    "Theo", "Felix", "Oscar", "Jake", "Will", "Ravi", "Kai", "Peter", "Paul", "Nico", "Milo", "Toby", "Emil", "Ali",
    "Henry", "George", "Louis", "Ned", "Ivan", "Arlo", "Bruno",
)  # fmt: skip
