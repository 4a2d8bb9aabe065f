// A section that has moved to another page is found at its old address, by the link to it on this page.
const wanted = decodeURIComponent(location.hash.slice(1));
if (wanted && !document.getElementById(wanted)) {
  const link = [...document.querySelectorAll("article a[href]")].find((a) => a.hash === location.hash);
  if (link) location.replace(link.href);
}
