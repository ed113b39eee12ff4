// Answers may arrive in another order than they were asked for, so every call says which of this page it is.
const CALL = /\/gradio_api\/(queue\/join|run\/)/;
const fetchAsItWas = window.fetch.bind(window);
let asked = 0;
window.fetch = (input, init) => {
  if (typeof input !== "string" || !CALL.test(input)) return fetchAsItWas(input, init);
  asked += 1;
  const headers = new Headers(init && init.headers);
  headers.set("x-asked", asked);
  return fetchAsItWas(input, { ...init, headers });
};
