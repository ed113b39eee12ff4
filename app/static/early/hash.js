// Fields behind # are those of the query: #run=2&step=10 asks for the same here as in a hand-out.

import { queryOfHash } from "../../../assets/viewer/address.js";

const follow = (address) => {
  const query = queryOfHash(new URL(address).hash.slice(1), location.search);
  if (query !== null) location.replace(`${location.origin}${location.pathname}?${query}`);
};
follow(location.href);
addEventListener("hashchange", ({ newURL }) => follow(newURL)); // not location.href: the page may have changed it since
